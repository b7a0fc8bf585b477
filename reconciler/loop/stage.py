"""What stands in for the parts of the agent while a rehearsal asks them: nothing of it is real.

Processes, effects and memories are as the rehearsal has them; files and engines are the agent's
own, and with them the files that would have been fetched by then.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from reconciler.apply.backends import BackendView
from reconciler.backend.engines import Assessment
from reconciler.backend.inventory import Inventory
from reconciler.backend.launch import Launch, Probe
from reconciler.backend.offer import Offer
from reconciler.loop.downloads import Place, place_of
from reconciler.loop.gpu_memory import Families, GpuFigures, gpu_rooms
from reconciler.loop.memory import Memory
from reconciler.loop.observation import Seen
from reconciler.loop.observer import Judge
from reconciler.plan.desired import DesiredModel, Format, ModelSpec, ModelType
from reconciler.plan.gpus import Gpu
from reconciler.plan.ids import FilesDigest, ModelName
from reconciler.plan.observed import (
    FilesCached,
    InFlight,
    Leftover,
    Observed,
    ObservedProcess,
)

Lookup = Callable[[ModelSpec], FilesCached | None]


class StagedProcesses:
    """Those of the rehearsal: what lives, as `seen`, and what it would have started since."""

    def __init__(self, seen: Seen, families: Families) -> None:
        self._seen = seen
        self._families = families
        self._views = {view.nonce: view for views in seen.views.values() for view in views}
        self._now = seen

    def show(self, there: Observed) -> Seen:
        """What the agent would see then."""
        views = {
            name: tuple(self._view(name, process) for process in seen.processes)
            for name, seen in there.models.items()
            if seen.processes
        }
        self._now = replace(
            self._seen,
            views=views,
            in_flight={
                name: seen.in_flight
                for name, seen in there.models.items()
                if seen.in_flight is not None
            },
            leftovers=there.leftovers,
        )
        return self._now

    def live(self) -> Iterable[BackendView]:
        return [view for views in self._now.views.values() for view in views]

    def leftovers(self) -> tuple[Leftover, ...]:
        return self._now.leftovers

    def families(self) -> Families:
        """Of those that live: what would be started has no pids."""
        return self._families

    def in_flight(self) -> Mapping[ModelName, InFlight]:
        return self._now.in_flight

    def _view(self, name: ModelName, process: ObservedProcess) -> BackendView:
        known = self._views.get(process.nonce)
        if known is not None:
            return replace(known, loaded_at=process.loaded_at)
        return BackendView(
            model=name,
            nonce=process.nonce,
            pid=process.pid,
            instance=process.instance,
            launch=_nothing(name, process.gpu_share),
            gpus=process.gpus,
            started_at=process.started_at,
            loaded_at=process.loaded_at,
            log_path=Path(),
            stopping=False,
        )


class StagedRooms:
    """What is free the rehearsal reckons. When that is known, by a survey of GPUs that has seen who
    came and who went, is told as it would be: `began` of a survey just before each look."""

    def __init__(self) -> None:
        self._there = Memory(rooms={}, held={})

    def show(self, there: Observed) -> Memory:
        """As the rehearsal has it, for who does not ask what is known of it."""
        held = {each.nonce: each.held for seen in there.models.values() for each in seen.processes}
        self._there = Memory(rooms=there.rooms, held=held)
        return self._there

    def look(
        self, families: Families, views: Iterable[BackendView], figures: GpuFigures
    ) -> Memory | None:
        seen = replace(figures, began=figures.now - _SURVEY_SECONDS)
        told = gpu_rooms(seen, families, [])
        rooms = {
            pool: replace(room, unknown=told[pool].unknown, returning=told[pool].returning)
            if pool in told
            else room
            for pool, room in self._there.rooms.items()
        }
        return replace(self._there, rooms=rooms)

    def forget(self) -> None:
        return

    def fresh(self) -> "StagedRooms":
        return self


_SURVEY_SECONDS = 0.1
"""Ago; rounds of a rehearsal are longer."""


@dataclass(slots=True)
class StagedFiles:
    """`here`: the cache's own answer. Each is asked for once: files do not change meanwhile."""

    here: Lookup
    offers: dict[FilesDigest, Offer | None] = field(default_factory=dict)
    _known: dict[tuple[Place, str | None], FilesCached | None] = field(default_factory=dict)
    _brought: dict[Place, dict[str | None, FilesCached]] = field(default_factory=dict)

    def lookup(self, spec: ModelSpec) -> FilesCached | None:
        key = place_of(spec)
        if key is None:
            return None
        files, pinned = key
        brought = self._brought.get(files, {})
        if pinned in brought:
            return brought[pinned]
        if key not in self._known:
            self._known[key] = self.here(spec)
        found = self._known[key]
        if found is not None:
            return found
        return next((each for each in brought.values() if pinned in (None, each.revision)), None)

    def bring(self, spec: ModelSpec, offer: Offer | None) -> None:
        """As a fetch would: what the hub offers, as far as it says."""
        key = place_of(spec)
        if key is None:
            return
        files, pinned = key
        digest = offer.files_digest if offer is not None else None
        digest = digest or FilesDigest(f"files of {spec.source}")
        self.offers[digest] = offer
        self._brought.setdefault(files, {})[pinned] = FilesCached(
            digest=digest,
            path="",
            root="",
            format=offer.format if offer is not None else spec.format,
            mmproj=offer.mmproj if offer is not None else None,
            size_bytes=offer.size_bytes if offer is not None else 0,
            revision=FilesDigest(pinned) if pinned else offer.revision if offer else None,
        )


@dataclass(frozen=True, slots=True)
class StagedEngines:
    """The engines; of files that are not here yet, they say what the hub's offer lets them."""

    real: Judge
    files: StagedFiles

    @property
    def inventory(self) -> Inventory:
        return self.real.inventory

    def likely_format(self, spec: ModelSpec) -> Format:
        return self.real.likely_format(spec)

    def assess(
        self,
        model: DesiredModel,
        files: FilesCached | None,
        devices: Sequence[Gpu] = (),
        offer: Offer | None = None,
    ) -> Assessment:
        if files is not None and not files.path:
            return self.real.assess(model, None, devices, self.files.offers.get(files.digest))
        return self.real.assess(model, files, devices, offer)


def _nothing(name: ModelName, gpu_share: float | None) -> Launch:
    """Of a process that there is not."""
    probe = Probe(
        health_path="",
        models_path="",
        served_name=name,
        answer_path="",
        answer_body={},
        type=ModelType.LLM,
    )
    return Launch(backend="", argv=(), env={}, host="", port=0, probe=probe, gpu_share=gpu_share)
