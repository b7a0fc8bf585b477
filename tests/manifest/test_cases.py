"""Bad manifests as data: `cases/NAME.yaml` and, beside it, every line that a reader gets."""

from pathlib import Path

import pytest

from reconciler.manifest.inspection import inspect
from reconciler.manifest.resolve import FileInput

CASES = Path(__file__).parent / "cases"


@pytest.mark.parametrize("case", sorted(CASES.glob("*.yaml")), ids=lambda case: case.stem)
def test_every_mistake_is_told_at_its_place(case: Path) -> None:
    """argo-cd#10987: an empty or broken manifest must say so, and be no empty desired state."""
    inspection = inspect([FileInput(name=case.name, content=case.read_bytes())])

    lines = [
        f"{problem}" if problem.is_error else f"warning: {problem}"
        for problem in inspection.problems
    ]
    assert lines == case.with_suffix(".txt").read_text().splitlines()
    assert (inspection.manifest is None) == any(not line.startswith("warning") for line in lines)


def test_every_expectation_has_its_case() -> None:
    stems = {path.stem for path in CASES.glob("*.yaml")}

    assert {path.stem for path in CASES.glob("*.txt")} == stems
