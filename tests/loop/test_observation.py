"""Looks at files and engines: everything is asked for at each tick, nothing is reckoned twice."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from reconciler.backend.engines import Assessment, Engines
from reconciler.backend.model_info import ModelInfo
from reconciler.backend.offer import HubSays, Offer
from reconciler.cache.model_cache import ModelCache
from reconciler.loop.books import Books
from reconciler.loop.observation import Looks, Secrets, Seen, observed
from reconciler.loop.observer import Observer
from reconciler.plan.desired import DesiredModel, Format, SecretRef
from reconciler.plan.gpus import Gpu
from reconciler.plan.ids import FilesDigest, Instance, ModelName, SpecHash
from reconciler.plan.observed import FilesCached
from tests.backend.build import inventory, llama_server, model
from tests.e2e.agent import MINIMAL_GGUF
from tests.loop.book_entries import view

ENVIRONMENT = {"HF_TOKEN": "hunter22"}


class CountingEngines(Engines):
    """Real ones, that count how often they are asked."""

    asked = 0

    def assess(
        self,
        model: DesiredModel,
        files: FilesCached | None,
        devices: Sequence[Gpu] = (),
        offer: Offer | None = None,
    ) -> Assessment:
        self.asked += 1
        return super().assess(model, files, devices, offer)


class HesitantEngines(CountingEngines):
    def assess(
        self,
        model: DesiredModel,
        files: FilesCached | None,
        devices: Sequence[Gpu] = (),
        offer: Offer | None = None,
    ) -> Assessment:
        return replace(super().assess(model, files, devices, offer), lasting=False)


class Watching:
    def __init__(self, folder: Path, engines: CountingEngines) -> None:
        self.file = folder / "model.gguf"
        self.file.write_bytes(MINIMAL_GGUF)
        self.engines = engines
        self.offers: dict[ModelName, HubSays] = {}
        nobody: Any = None
        self._observer = Observer(
            cache=ModelCache(folder / "models", None),
            engines=self.engines,
            backends=nobody,
            effects=nobody,
            memory=nobody,
            environment=ENVIRONMENT,
            hung=dict,
            offers=self.offers,
        )

    def look(self, *models: DesiredModel, running: Instance | None = None) -> Looks:
        """`running`: the one process there is of every model."""
        views = (replace(view(), instance=running),) if running is not None else ()
        return self._observer.look(models, {model.name: views for model in models})

    def secrets(self, model: DesiredModel, running: Instance | None = None) -> Secrets:
        return self.look(model, running=running)[model.name].secrets

    def model(
        self, *, env: Mapping[str, SecretRef] = MappingProxyType({}), **changes: Any
    ) -> DesiredModel:
        return replace(model(source=f"file://{self.file}", env=env), **changes)


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


def test_other_engines_are_asked_anew_and_are_another_look(watching: Watching) -> None:
    first = watching.look(watching.model())
    watching.engines.take_up(inventory(llama_server()))
    again = watching.look(watching.model())
    assert again is not first
    assert again == first
    assert watching.engines.asked == 2
    watching.engines.take_up(inventory(llama_server_cpu="gone"))
    (look,) = watching.look(watching.model()).values()
    assert look.refusal is not None
    assert "llama-server-cpu: gone" in look.refusal


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


def test_what_the_hub_says_of_the_format_is_assessed_before_the_files_are_here(
    watching: Watching,
) -> None:
    wants = model(source="models/org_name")
    (unasked,) = watching.look(wants).values()
    assert (unasked.refusal, unasked.offered.unoffered is None) == (None, False)
    offer = Offer(format=Format.SAFETENSORS, size_bytes=1, weights_bytes=1, info=ModelInfo())
    watching.offers[wants.name] = HubSays(spec=wants.spec, offer=offer)
    (told,) = watching.look(wants).values()
    assert told.assessment.format is Format.SAFETENSORS
    assert told.assessment.no_backend is not None
    assert told.offered.unoffered is None


def test_a_variable_that_the_agent_does_not_have_is_a_refusal(watching: Watching) -> None:
    found = watching.model(env={"TOKEN": SecretRef(from_env="HF_TOKEN")})
    missing = watching.model(env={"TOKEN": SecretRef(from_env="NOPE")})
    assert watching.secrets(found) == Secrets()
    refusal = watching.secrets(missing).refusal
    assert refusal is not None
    assert "env TOKEN is from_env NOPE" in refusal


def test_a_secret_s_file_is_looked_for_until_it_is_there(watching: Watching) -> None:
    secret = watching.file.with_name("secret")
    wants = watching.model(env={"TOKEN": SecretRef(from_file=str(secret))})
    hindrance = watching.secrets(wants).hindrance
    assert hindrance is not None
    assert f"from_file {secret}: No such file" in hindrance
    same = watching.look(wants)
    assert watching.look(wants) is same
    secret.write_text("hunter22\n")
    assert watching.secrets(wants) == Secrets()
    assert watching.engines.asked == 1


def test_secrets_of_what_runs_as_it_is_wanted_are_not_read(watching: Watching) -> None:
    wants = watching.model(env={"TOKEN": SecretRef(from_file="/nope")})
    (look,) = watching.look(wants).values()
    assert look.files is not None
    running = Instance(spec_hash=wants.spec_hash, files_digest=look.files.digest)
    assert watching.secrets(wants, running) == Secrets()
    for other in (
        replace(running, spec_hash=SpecHash("1:01")),
        replace(running, files_digest=FilesDigest("other")),
    ):
        assert watching.secrets(wants, other).hindrance is not None


def test_secrets_of_a_disabled_model_are_not_read(watching: Watching) -> None:
    wants = watching.model(env={"TOKEN": SecretRef(from_file="/nope")}, enabled=False)
    assert watching.secrets(wants) == Secrets()


def test_the_planner_knows_why_engines_cannot_be_looked_for() -> None:
    seen = Seen(views={}, in_flight={}, leftovers=(), engines_failure="OSError: why")

    there = observed(seen, {}, Books(), None, misplaced={}, max_parallel_loads=1)

    assert there.engines_failure == "OSError: why"
