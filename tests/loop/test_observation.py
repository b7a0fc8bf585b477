"""Looks at files and engines: everything is asked for at each tick, nothing is reckoned twice."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.backend.engines import Assessment, Engines
from reconciler.cache.model_cache import ModelCache
from reconciler.loop.observation import Looks, Observer
from reconciler.plan.desired import DesiredModel
from reconciler.plan.ids import SpecHash
from reconciler.plan.observed import FilesCached
from tests.backend.build import inventory, llama_server, model
from tests.e2e.agent import MINIMAL_GGUF


class CountingEngines(Engines):
    """Real ones, that count how often they are asked."""

    asked = 0

    def assess(self, model: DesiredModel, files: FilesCached | None) -> Assessment:
        self.asked += 1
        return super().assess(model, files)


class HesitantEngines(CountingEngines):
    def assess(self, model: DesiredModel, files: FilesCached | None) -> Assessment:
        return replace(super().assess(model, files), lasting=False)


class Watching:
    def __init__(self, folder: Path, engines: CountingEngines) -> None:
        self.file = folder / "model.gguf"
        self.file.write_bytes(MINIMAL_GGUF)
        self.engines = engines
        nobody: Any = None
        self._observer = Observer(
            cache=ModelCache(folder / "models", None),
            engines=self.engines,
            backends=nobody,
            effects=nobody,
        )

    def look(self, *models: DesiredModel) -> Looks:
        return self._observer.look(models)

    def model(self, **changes: Any) -> DesiredModel:
        return replace(model(source=f"file://{self.file}"), **changes)


@pytest.fixture
def watching(tmp_path: Path) -> Watching:
    return Watching(tmp_path, CountingEngines(inventory(llama_server())))


def test_the_same_models_and_files_are_the_very_same_looks(watching: Watching) -> None:
    first = watching.look(watching.model())
    assert watching.look(watching.model()) is first
    assert watching.engines.asked == 1


def test_a_model_that_changed_is_assessed_anew(watching: Watching) -> None:
    first = watching.look(watching.model())
    again = watching.look(watching.model(spec_hash=SpecHash("1:01")))
    assert again is not first
    assert watching.engines.asked == 2


def test_files_that_changed_are_assessed_anew(watching: Watching) -> None:
    (first,) = watching.look(watching.model()).values()
    watching.file.write_bytes(MINIMAL_GGUF + b"more")
    (again,) = watching.look(watching.model()).values()
    assert first.files is not None
    assert again.files is not None
    assert again.files.digest != first.files.digest
    assert watching.engines.asked == 2


def test_what_engines_could_not_say_for_sure_is_asked_at_each_tick(tmp_path: Path) -> None:
    """A header that cannot be read just now: `Assessment.lasting`."""
    watching = Watching(tmp_path, HesitantEngines(inventory(llama_server())))
    for _ in range(3):
        watching.look(watching.model())
    assert watching.engines.asked == 3


def test_a_model_that_left_is_forgotten(watching: Watching) -> None:
    watching.look(watching.model())
    assert watching.look() == {}
    watching.look(watching.model())
    assert watching.engines.asked == 2
