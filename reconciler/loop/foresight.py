"""A rehearsal with all that the agent knows: its own deliberation, on copies, with the hub asked.

It begins nothing and tells nobody. What the loop would learn on its way (what the hub offers, which
files have come, what is last good) is learned here, too, and forgotten with it.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Self, TypeVar

from reconciler.apply.backends import BackendView
from reconciler.apply.daemon_thread import in_daemon_thread
from reconciler.apply.outcomes import BackendStopped, EffectFailed, FilesFetched, Outcome
from reconciler.backend.offer import HubSays
from reconciler.errors import Transient
from reconciler.loop.books import Books
from reconciler.loop.deliberation import Deliberation, Settled
from reconciler.loop.gpu_memory import Families
from reconciler.loop.hub_subjects import unfetched, without_backend
from reconciler.loop.keeping import Keeping
from reconciler.loop.observation import Look, Looks, Seen, observed
from reconciler.loop.pardons import Pardons
from reconciler.loop.reverts import note_good, want
from reconciler.loop.stage import (
    StagedEngines,
    StagedFiles,
    StagedProcesses,
    StagedRooms,
)
from reconciler.plan.actions import Action, FetchFiles, StopBackend
from reconciler.plan.desired import Desired, DesiredModel, ModelSpec
from reconciler.plan.durations import Durations
from reconciler.plan.ids import ModelName
from reconciler.plan.memory import Room
from reconciler.plan.observed import EffectKind, Observed
from reconciler.plan.rehearsal import Rehearsal, Thought, rehearse

HUB_SECONDS = 10.0
"""For all that the hub is asked at a time; then it is taken for silent."""
LONGEST_SECONDS = 60.0
_ROUND_SECONDS = 20.0
"""From one plan to the next: what ends gives its memory back meanwhile, and GPUs are asked."""
_QUESTIONS_AT_ONCE = 4

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hub:
    """Blocking questions, of a model that is not here. `hint`: what would help where nothing can
    run it, as a clause."""

    offer: Callable[[ModelSpec], HubSays | None]
    hint: Callable[[ModelSpec], str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What the loop knows at one moment. `deliberation`: copies, but for the observer, which is the
    loop's own. `hints`, `offers`: what the hub has told. `looks`: at what is in force. `pasts`: how
    long things have taken."""

    deliberation: Deliberation
    seen: Seen
    families: Families
    now: float
    hints: Mapping[ModelName, str]
    offers: Mapping[ModelName, HubSays]
    looks: Looks
    pasts: Mapping[ModelName, Durations]

    @property
    def live(self) -> Iterable[BackendView]:
        return [view for views in self.seen.views.values() for view in views]


@dataclass(slots=True)
class _Learned:
    """What the hub has told, the fetches as they would be begun, and the newest settlement.
    `missing`: why the files of a model cannot be had."""

    hints: dict[ModelName, str]
    offers: dict[ModelName, HubSays]
    asked: set[ModelName] = field(default_factory=set)
    fetched: dict[ModelName, Look] = field(default_factory=dict)
    missing: dict[ModelName, str] = field(default_factory=dict)
    settled: Settled | None = None

    def of(self, model: DesiredModel) -> HubSays | None:
        """What the hub has said of its files; None: nothing."""
        says = self.offers.get(model.name)
        return says if says is not None and says.spec in (None, model.spec) else None


class Foresight(AbstractContextManager["Foresight"]):
    """Of one manifest, `wanted`. For a thread of its own, which has no event loop."""

    def __init__(
        self, ground: Ground, wanted: Desired, *, hub: Hub, keeping: Keeping, pardons: Pardons
    ) -> None:
        self._ground = ground
        self._wanted = wanted
        self._hub = hub
        self._keeping = keeping
        self._pardons = pardons
        self._runner = asyncio.Runner()
        self._until = time.monotonic() + LONGEST_SECONDS
        real = ground.deliberation.observer
        # What the hub had not is asked for anew: it may have been pushed since.
        offers = {name: says for name, says in ground.offers.items() if says.missing is None}
        self.learned = _Learned(hints=dict(ground.hints), offers=offers)
        self._files = StagedFiles(real.files.lookup)
        self._processes = StagedProcesses(ground.seen, ground.families)
        self._rooms = StagedRooms()
        own = ground.deliberation.copy()
        self.deliberation = replace(
            own,
            observer=real.rehearsing(
                files=self._files,
                engines=StagedEngines(real.engines, self._files),
                processes=self._processes,
                under_way=self._processes,
                memory=self._rooms,
                hung=ground.seen.hung,
                hints=self.learned.hints,
                offers=self.learned.offers,
            ),
            reverts=own.reverts.with_files(self._files.lookup),
            families=self._processes.families,
        )
        self._first = True

    def __enter__(self) -> Self:
        self._runner.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._runner.__exit__(kind, error, trace)

    def run(self) -> Rehearsal:
        """Raises Transient where it takes too long."""
        return rehearse(self._there(), self._think, self._ground.now)

    def _there(self) -> Observed:
        """What is there now, with the memory as it is, and as it will be told soon."""
        ground, own = self._ground, self.deliberation
        figures = own.gpus.figures()
        memory = ground.deliberation.observer.reading(ground.seen, ground.families, figures)
        if memory is not None:
            rooms = {pool: _told(room) for pool, room in memory.rooms.items()}
            memory = replace(memory, rooms=rooms)
        return observed(
            ground.seen,
            {},
            own.books,
            memory,
            misplaced={},
            max_parallel_loads=own.max_parallel_loads,
        )

    def _think(self, there: Observed, done: tuple[Action, ...]) -> Thought:
        if time.monotonic() > self._until:
            raise Transient(
                f"cannot tell what would be done: that takes over {LONGEST_SECONDS:.0f} s"
            )
        own, now = self.deliberation, self._ground.now
        own.gpus.let_pass(_ROUND_SECONDS)
        seen = self._processes.show(there)
        want(own.books, self._wanted)
        self._book(done, now)
        if self._first:
            self._pardons.foresee(own.books, self._wanted)
            self._first = False
        settled = self._settle(seen)
        looks = settled.looks
        note_good(own.books, looks, seen)
        own.books.keep_only(looks.keys() | seen.views.keys() | seen.in_flight.keys())
        known = self._rooms.show(there)
        asked = self._run(own.observer.memory(looks, seen, own.gpus.figures()))
        memory = asked or known
        said, made = own.plan(settled.gpus, looks, seen, memory, now)
        learned = own.surges.note(made.staying) | memory.settles
        learned |= self._ask(settled)
        fetched = [each.model for each in made.actions if isinstance(each, FetchFiles)]
        fetched += [name for name, each in seen.in_flight.items() if each.kind is EffectKind.FETCH]
        for name in fetched:
            if name in looks and looks[name].files is None:
                self.learned.fetched[name] = looks[name]
        return Thought(
            desired=settled.gpus.desired,
            observed=said,
            plan=own.reverts.shown(made, now),
            learned=learned,
        )

    def _settle(self, seen: Seen) -> Settled:
        own = self.deliberation
        settled = self._run(own.settle(self._wanted, seen, self._ground.now))
        self.learned.settled = settled
        later = own.reverts.later(own.books)
        if _found_no_room(own.books) and self._keeping.lets_go(settled.looks, seen, later):
            own.books.hurry_fetches()
        return settled

    def _book(self, done: tuple[Action, ...], now: float) -> None:
        books = self.deliberation.books
        for view in self._processes.live():
            books.see(view)
        for action in done:
            match action:
                case FetchFiles():
                    books.book_outcome(self._bring(action), at=now)
                case StopBackend():
                    stopped = BackendStopped(
                        model=action.model,
                        nonce=action.nonce,
                        failure=action.failure,
                        ran_seconds=action.ran_seconds,
                    )
                    books.book_outcome(stopped, at=now)
                case _:
                    pass

    def _bring(self, action: FetchFiles) -> Outcome:
        """What was fetched for is what was wanted then."""
        name, key = action.model, action.spec_hash
        look = self.learned.fetched.get(name)
        model = look.desired if look is not None else _named(self._wanted, name)
        if model is not None and model.fetch_key == key:
            says = self.learned.of(model) or HubSays()
            if says.missing is not None:
                return EffectFailed(
                    model=name,
                    spec_hash=key,
                    files_digest=None,
                    during="fetch",
                    reason=says.missing,
                    permanent=says.is_final,
                )
            self._files.bring(model.spec, says.offer)
        return FilesFetched(model=name, spec_hash=key, seconds=0.0, size_bytes=0)

    def _ask(self, settled: Settled) -> bool:
        """As the loop would, for the next plan. Whether the hub was asked something new."""
        told, learned = settled.looks, self.learned
        offers = {
            name: spec
            for name, spec in unfetched(told).items()
            if not _is_said(learned.offers.get(name), spec)
        }
        hints = {
            name: spec
            for name, spec in without_backend(told).items()
            if name not in learned.asked and name not in learned.hints
        }
        learned.asked |= hints.keys()
        if not offers and not hints:
            return False
        said = self._run(_answers(self._hub.offer, offers))
        learned.offers |= {name: said.get(name) or HubSays() for name in offers}
        for name, says in said.items():
            if says is not None and says.missing is not None:
                learned.missing[name] = says.missing
        helps = self._run(_answers(self._hub.hint, hints))
        learned.hints |= {name: hint for name, hint in helps.items() if hint is not None}
        return True

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)


def _is_said(says: HubSays | None, spec: ModelSpec) -> bool:
    return says is not None and says.spec in (None, spec)


def _found_no_room(books: Books) -> bool:
    """Whether a download has failed that is tried again."""
    failures = map(books.failure, books.models())
    return any(each and each.during == "fetch" and not each.permanent for each in failures)


async def _answers(
    ask: Callable[[ModelSpec], T | None], specs: Mapping[ModelName, ModelSpec]
) -> Mapping[ModelName, T | None]:
    """Of those that are answered in time."""
    found: dict[ModelName, T | None] = {}
    slots = asyncio.Semaphore(_QUESTIONS_AT_ONCE)

    async def one(name: ModelName, spec: ModelSpec) -> None:
        def look() -> None:
            found[name] = ask(spec)

        async with slots:
            await in_daemon_thread(look, name=f"rehearsal:{spec.source}")

    tasks = [
        asyncio.create_task(one(name, spec), name=f"ask:{name}") for name, spec in specs.items()
    ]
    if tasks:
        _, late = await asyncio.wait(tasks, timeout=HUB_SECONDS)
        for task in late:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return dict(found)


def _named(desired: Desired, name: ModelName) -> DesiredModel | None:
    return next((model for model in desired.models if model.name == name), None)


def _told(room: Room) -> Room:
    """What is being asked just now is known by the time that it counts."""
    return replace(room, unknown=None, returning=())
