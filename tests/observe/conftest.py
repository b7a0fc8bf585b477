"""A machine whose GPUs the vendors' libraries tell of, and ours are."""

from pathlib import Path

import pytest

from reconciler.observe.devices.survey import survey
from reconciler.plan.gpu_survey import Answer, Step
from tests.observe.gpu_libraries import GpuLibraries


class Machine:
    """What this process and its children take for the machine."""

    def __init__(self, place: Path, libraries: GpuLibraries, patch: pytest.MonkeyPatch) -> None:
        self._place = place
        self._libraries = libraries
        self._patch = patch
        (place / "dev").mkdir()
        (place / "dev/kfd").touch()

    def has(self, *, nvidia: str | None = None, amd: str | None = None) -> None:
        for name, value in self._libraries.machine(self._place, nvidia=nvidia, amd=amd).items():
            self._patch.setenv(name, value)

    def survey(self, *, step_seconds: float = 30.0) -> dict[Step, Answer]:
        answers = survey(step_seconds=step_seconds, root=self._place)
        assert [answer.step for answer in answers] == list(Step)
        return {answer.step: answer for answer in answers}


@pytest.fixture
def machine(tmp_path: Path, libraries: GpuLibraries, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, libraries, monkeypatch)
