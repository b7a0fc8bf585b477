"""What the books know of models beyond the life of the agent: kept on disk, and read at a start.

A block of an earlier agent is in force until what it depends on is otherwise; a new boot clears the
exits (R7). Downloads that were refused are not kept: only the hub knows whether they still are.
"""

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

import structlog

from reconciler.apply.histories import Block, Circumstances, Histories, History
from reconciler.backend.inventory import Build, Inventory, called
from reconciler.errors import Transient
from reconciler.loop.books import Books
from reconciler.loop.clock import Clock
from reconciler.loop.gpus import Gpus
from reconciler.loop.observation import Look, Looks
from reconciler.loop.terms import mark_of
from reconciler.plan.desired import Desired
from reconciler.plan.gpu_roll import Roll
from reconciler.plan.ids import FilesDigest, ModelName, SpecHash
from reconciler.plan.observed import Failure

_log = structlog.get_logger("xgen.loop")

_EXITS = ("load", "run")
_Key = tuple[ModelName, SpecHash, FilesDigest | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifted:
    """A block of an earlier agent that does not hold any more. `why`: as a clause."""

    model: ModelName
    failure: Failure
    why: str


_NOTHING_KEPT = History()


class Archive:
    """Kept by the loop alone. `boot_id`: of this boot. `inventory`: the engines as of now."""

    def __init__(
        self,
        histories: Histories,
        boot_id: str,
        inventory: Callable[[], Inventory],
        clock: Clock,
    ) -> None:
        self._histories = histories
        self._boot_id = boot_id
        self._inventory = inventory
        self._clock = clock
        self._kept: dict[ModelName, History] = {}
        self._there: dict[_Key, Circumstances] = {}
        self._moments: dict[_Key, tuple[float, datetime]] = {}
        self._doubtful: dict[_Key, Block] = {}
        self._unasked: dict[_Key, Block] = {}
        self._unsaved: dict[ModelName, str] = {}

    @property
    def unsaved(self) -> bool:
        """Whether something is to be written again."""
        return bool(self._unsaved)

    @property
    def problems(self) -> tuple[str, ...]:
        """What is not on disk, as sentences. It stops nothing. What could not be read, or was
        removed since, `Histories.keep` tells."""
        return tuple(self._unsaved.values())

    def open(self, books: Books) -> None:
        """Enter what earlier agents knew. For a thread: it reads the disk."""
        now = self._clock.monotonic()
        found, unread = self._histories.read(at=now)
        for problem in unread:
            _log.warning("a history cannot be read", problem=problem)
        for model, history in found.items():
            self._kept[model] = history
            blocks = [self._dated(each, now) for each in history.blocks if self._holds(each)]
            for block in blocks:
                key = _key(model, block.failure)
                self._there[key] = block.circumstances
                self._doubtful[key] = block
                if block.failure.during == "load" and block.circumstances.terms is not None:
                    self._unasked[key] = block
                if block.at is not None:
                    self._moments[key] = (block.failure.at, block.at)
            books.restore(
                model,
                failures=[block.failure for block in blocks],
                loaded=history.loaded,
                last_good=history.last_good,
                durations=history.durations,
                restarts=dict(history.restarts),
            )

    def review(self, roll: Roll | None) -> Iterator[Lifted]:
        """The blocks of earlier agents for which there is another engine, or other GPUs, now.
        `roll` None: it is not known yet."""
        inventory = self._inventory()
        if not inventory.known:
            return
        for key, block in tuple(self._doubtful.items()):
            gains = tuple(_gains(block.circumstances, inventory, roll))
            if roll is not None or gains or not block.circumstances.gpus:
                del self._doubtful[key]
            if gains:
                yield Lifted(model=key[0], failure=block.failure, why=" and ".join(gains))

    def recheck(self, desired: Desired) -> Iterator[Lifted]:
        """Those whose load is held to other terms by now; each is looked at once."""
        yield from self.on_other_terms(desired)
        names = {model.name for model in desired.models}
        self._unasked = {key: each for key, each in self._unasked.items() if key[0] not in names}

    def on_other_terms(self, desired: Desired) -> Iterator[Lifted]:
        """The same, of a manifest that is only asked about."""
        for model in desired.models:
            for key, block in self._unasked.items():
                if key[0] == model.name and block.circumstances.terms != mark_of(model):
                    why = "its checks or timeouts have changed"
                    yield Lifted(model=model.name, failure=block.failure, why=why)

    async def keep(self, books: Books, looks: Iterable[Looks], gpus: Gpus) -> None:
        """Write what is new, and try again what could not be written. `looks`: at all specs that
        may have failed; a model without one is gone."""
        by_hash = {
            (name, look.desired.spec_hash): look for each in looks for name, look in each.items()
        }
        names = {name for name, _ in by_hash}
        histories = {name: self._history(name, books, by_hash, gpus) for name in names}
        news = {name: each for name, each in histories.items() if each != self._known(name)}
        gone = [name for name in self._kept if name not in names]
        if news or gone:
            await asyncio.to_thread(self._write, news, gone)
        blocks = {
            _key(name, block.failure): block
            for name, each in histories.items()
            for block in each.blocks
        }
        self._there = {key: block.circumstances for key, block in blocks.items()}
        self._moments = {key: each for key, each in self._moments.items() if key in blocks}

    def _history(
        self,
        model: ModelName,
        books: Books,
        looks: Mapping[tuple[ModelName, SpecHash], Look],
        gpus: Gpus,
    ) -> History:
        blocks = []
        for failure in books.lasting(model):
            if failure.during not in (*_EXITS, "start"):
                continue
            key = _key(model, failure)
            there = self._there.get(key)
            if there is None:
                look = looks.get((model, failure.spec_hash))
                there = self._circumstances(look, gpus.roll)
            at = self._moment(key, failure.at)
            blocks.append(Block(failure=replace(failure, at=0.0), circumstances=there, at=at))
        return History(
            blocks=tuple(blocks),
            loaded=books.loaded(model),
            last_good=books.last_good(model),
            durations=books.stopwatch.past(model),
            restarts=books.restart_causes(model),
        )

    def _circumstances(self, look: Look | None, roll: Roll | None) -> Circumstances:
        if look is None:
            return Circumstances(boot_id=self._boot_id)
        spec, there = look.desired.spec, Circumstances(boot_id=self._boot_id)
        there = replace(
            there,
            backend=spec.backend,
            engine=spec.engine,
            builds=tuple(sorted(_marks(spec.backend, spec.engine, self._inventory()))),
            terms=mark_of(look.desired),
        )
        if roll is None or not look.desired.gpus:
            return there
        return replace(there, gpus=_usable(roll), drivers=roll.drivers)

    def _moment(self, key: _Key, at: float) -> datetime:
        """The same for the same failure, however the two clocks drift."""
        known = self._moments.get(key)
        if known is None or known[0] != at:
            known = self._moments[key] = (at, self._on_the_wall(at))
        return known[1]

    def _dated(self, block: Block, now: float) -> Block:
        """With the moment of the failure on this agent's clock; one that lies ahead, since the wall
        clock was set back, is now."""
        if block.at is None:
            return block
        passed = (self._on_the_wall(now) - block.at).total_seconds()
        return replace(block, failure=replace(block.failure, at=now - max(0.0, passed)))

    def _on_the_wall(self, moment: float) -> datetime:
        return datetime.fromisoformat(self._clock.wall(moment))

    def _holds(self, block: Block) -> bool:
        return block.failure.during not in _EXITS or block.circumstances.boot_id == self._boot_id

    def _known(self, model: ModelName) -> History:
        """As compared: moments of another agent's clock mean nothing."""
        kept = self._kept.get(model, _NOTHING_KEPT)
        if not kept.blocks:
            return kept
        blocks = tuple(
            replace(block, failure=replace(block.failure, at=0.0)) for block in kept.blocks
        )
        return replace(kept, blocks=blocks)

    def _write(self, news: Mapping[ModelName, History], gone: Iterable[ModelName]) -> None:
        for model, history in news.items():
            try:
                self._histories.write(model, history)
            except Transient as exc:
                self._miss(model, str(exc))
            else:
                self._kept[model] = history
                self._unsaved.pop(model, None)
        for model in gone:
            try:
                self._histories.remove(model)
            except Transient as exc:
                self._miss(model, str(exc))
            else:
                del self._kept[model]
                self._unsaved.pop(model, None)

    def _miss(self, model: ModelName, problem: str) -> None:
        if model not in self._unsaved:
            _log.error("what is known of a model is not on disk", model=model, error=problem)
        self._unsaved[model] = f"{problem}; a restart would not know what is blocked and last good"


def _key(model: ModelName, failure: Failure) -> _Key:
    return model, failure.spec_hash, failure.files_digest


def _gains(there: Circumstances, inventory: Inventory, roll: Roll | None) -> Iterator[str]:
    if there.builds is not None:
        marks = _marks(there.backend, there.engine, inventory)
        others = [build for mark, build in marks.items() if mark not in there.builds]
        if others:
            what = " and ".join(sorted(build.detail for build in others))
            yield f"there is another engine: {what}"
    if roll is None or not there.gpus:
        return
    for identity, name in _usable(roll):
        if (identity, name) not in there.gpus:
            yield f"GPU {identity} can be used now"
    if there.drivers:
        yield from (f"GPUs have {each} now" for each in roll.drivers if each not in there.drivers)


def _usable(roll: Roll) -> tuple[tuple[str, str], ...]:
    return tuple((str(device.identity), device.name) for device in roll.usable)


def _marks(backend: str, engine: str | None, inventory: Inventory) -> dict[str, Build]:
    """The builds that it may run on, by what tells each from another one in its place."""
    return {
        _mark(build): build
        for build in inventory.builds
        if build.name == engine and (engine or backend in ("auto", build.id))
    }


def _mark(build: Build) -> str:
    """Devices and inodes are left out: a container has others after each start."""
    files = [(stamp.path, stamp.identity and stamp.identity[2:]) for stamp in build.files]
    told = repr((build.command, build.version, build.detail, files))
    return f"{called(build)} {hashlib.sha256(told.encode()).hexdigest()[:16]}"
