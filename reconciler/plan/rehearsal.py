"""What would be done from here on if every action succeeded, until nothing more is asked for.

    what is there ─▶ think: a plan ─▶ its actions come true ─▶ what is there then ─▶ think …

Who thinks is given: an agent on copies of all that it knows, or the planner alone.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from reconciler.plan.actions import (
    AbortFetch,
    Action,
    FetchFiles,
    KeepBackend,
    Plan,
    StartBackend,
    StopBackend,
    StopLeftover,
)
from reconciler.plan.desired import Desired, Format
from reconciler.plan.ids import FilesDigest, GpuUuid, Instance, ModelName, Nonce
from reconciler.plan.memory import Needs, Pool
from reconciler.plan.observed import (
    EffectKind,
    FilesCached,
    InFlight,
    Observed,
    ObservedModel,
    ObservedProcess,
)
from reconciler.plan.planner import plan

ROUNDS = 10_000
"""Far more than any manifest needs: a model takes part in three."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Thought:
    """What is made of what is there. `observed`: the same, with all that was found out about it.
    `learned`: it would be thought of anew, though nothing has changed."""

    desired: Desired | None
    observed: Observed
    plan: Plan
    learned: bool = False


Think = Callable[[Observed, tuple[Action, ...]], Thought]
"""Asked with what is there, and what has come true since it was asked last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """`actions`: in the order in which they are begun. `first` and `last`: what was thought at
    first, and of what they come to. `free_bytes`: of each memory then; less than nothing: more was
    taken than there is. `at_rest` False: there was no end of it."""

    actions: tuple[Action, ...]
    first: Thought
    last: Thought
    free_bytes: Mapping[Pool, int]
    at_rest: bool

    def of(self, model: ModelName) -> tuple[Action, ...]:
        return tuple(each for each in self.actions if each.model == model)


def rehearse(there: Observed, think: Think, now: float) -> Rehearsal:
    """`now`: at which all of it happens, on the clock of `there`."""
    actions: list[Action] = []
    world = _World(there, now)
    thought, at_rest = think(there, ()), False
    first = thought
    for _ in range(ROUNDS):
        world.learn(thought)
        actions += thought.plan.actions
        done = (*thought.plan.actions, *world.carry_out(thought.plan.actions))
        at_rest = not world.pass_on() and not done and not thought.learned
        if at_rest:
            break
        thought = think(world.observed, done)
    return Rehearsal(
        actions=tuple(actions),
        first=first,
        last=thought,
        free_bytes=world.free_bytes,
        at_rest=at_rest,
    )


def planner_alone(desired: Desired, now: float) -> Think:
    """For who knows no more than what it says is there."""

    def think(observed: Observed, _done: tuple[Action, ...]) -> Thought:
        return Thought(desired=desired, observed=observed, plan=plan(desired, observed, now))

    return think


def files_of(digest: FilesDigest) -> FilesCached:
    """Files of which only the digest counts."""
    return FilesCached(digest=digest, path="", root="", format=Format.AUTO)


class _World:
    """What is there, as it changes. A memory has less free by what a process needs that starts, and
    more by what one held that ends."""

    def __init__(self, observed: Observed, now: float) -> None:
        self.observed = observed
        self._now = now
        self.free_bytes = {pool: room.free_bytes for pool, room in observed.rooms.items()}
        self._shares: Mapping[ModelName, float | None] = {}
        self._born = 0

    def learn(self, thought: Thought) -> None:
        models = thought.desired.models if thought.desired is not None else ()
        self._shares = {model.name: model.gpu_share for model in models}
        self.observed = replace(thought.observed, rooms=self.observed.rooms)

    def carry_out(self, actions: tuple[Action, ...]) -> tuple[Action, ...]:
        """The actions, and what was under way before; of the latter, the actions that they were."""
        before = self.observed.models
        for action in actions:
            self._carry_out(action)
        ended = [
            order
            for name, seen in sorted(before.items())
            if seen.in_flight is not None and self._seen(name).in_flight is not None
            for order in self._end(name, seen.in_flight)
        ]
        return tuple(ended)

    def pass_on(self) -> bool:
        """Let what loads have loaded, and what has died be gone. Whether there was any of it."""
        changed = False
        for name, seen in self.observed.models.items():
            left = tuple(
                replace(each, loaded_at=self._now) if each.loaded_at is None else each
                for each in seen.processes
                if not each.died
            )
            if left != seen.processes:
                changed = True
                for each in seen.processes:
                    if each.died:
                        self._give_back(each)
                self._put(replace(self._seen(name), processes=left))
        return changed

    def _carry_out(self, action: Action) -> None:
        seen = self._seen(action.model)
        match action:
            case FetchFiles():
                self._put(replace(seen, files=files_of(FilesDigest(f"of {action.spec_hash}"))))
            case StartBackend():
                self._spawn(seen, action.instance, action.gpus, self._shares.get(action.model))
            case StopBackend():
                self._remove(seen, action.nonce)
            case StopLeftover():
                self._remove_leftover(action.nonce)
            case AbortFetch() | KeepBackend():
                self._put(replace(seen, in_flight=None))

    def _end(self, name: ModelName, effect: InFlight) -> Iterator[Action]:
        seen = replace(self._seen(name), in_flight=None)
        self._put(seen)
        if effect.aborting:
            return
        reason = "under way"
        match effect.kind:
            case EffectKind.FETCH:
                self._put(replace(seen, files=files_of(FilesDigest(f"of {effect.spec_hash}"))))
                yield FetchFiles(model=name, spec_hash=effect.spec_hash, reason=reason)
            case EffectKind.START:
                digest = seen.files.digest if isinstance(seen.files, FilesCached) else None
                instance = Instance(
                    spec_hash=effect.spec_hash, files_digest=digest or FilesDigest("")
                )
                self._spawn(seen, instance, effect.gpus, effect.gpu_share)
                yield StartBackend(model=name, instance=instance, gpus=effect.gpus, reason=reason)
            case EffectKind.STOP:
                for each in seen.processes:
                    known = effect.nonce is not None
                    mine = each.nonce == effect.nonce
                    if mine or (not known and each.instance.spec_hash == effect.spec_hash):
                        self._remove(seen, each.nonce)
                        yield StopBackend(
                            model=name,
                            nonce=each.nonce,
                            pid=each.pid,
                            drain=False,
                            reason=effect.detail or reason,
                            cause=effect.detail or reason,
                        )
                        return
                if effect.nonce is not None:
                    self._remove_leftover(effect.nonce)

    def _spawn(
        self,
        seen: ObservedModel,
        instance: Instance,
        gpus: tuple[GpuUuid, ...],
        share: float | None,
    ) -> None:
        self._born += 1
        born = ObservedProcess(
            nonce=Nonce(f"new-{self._born}"),
            pid=-self._born,
            instance=instance,
            started_at=self._now,
            loaded_at=self._now,
            gpus=gpus,
            gpu_share=share,
            held=_held(seen.needs),
        )
        for pool, size in born.held.items():
            self._free(pool, -size)
        self._put(replace(seen, processes=(*seen.processes, born)))

    def _remove(self, seen: ObservedModel, nonce: Nonce) -> None:
        for each in seen.processes:
            if each.nonce == nonce:
                self._give_back(each)
        left = tuple(each for each in seen.processes if each.nonce != nonce)
        self._put(replace(seen, processes=left))

    def _remove_leftover(self, nonce: Nonce) -> None:
        rest = tuple(each for each in self.observed.leftovers if each.nonce != nonce)
        self.observed = replace(self.observed, leftovers=rest)

    def _give_back(self, process: ObservedProcess) -> None:
        for pool, size in process.held.items():
            self._free(pool, size)

    def _free(self, pool: Pool, size_bytes: int) -> None:
        room = self.observed.rooms.get(pool)
        if room is not None:
            self.free_bytes[pool] += size_bytes
            free_bytes = min(max(self.free_bytes[pool], 0), room.total_bytes)
            rooms = {**self.observed.rooms, pool: replace(room, free_bytes=free_bytes)}
            self.observed = replace(self.observed, rooms=rooms)

    def _seen(self, name: ModelName) -> ObservedModel:
        return self.observed.models.get(name) or ObservedModel(name=name)

    def _put(self, seen: ObservedModel) -> None:
        models = {**self.observed.models, seen.name: seen}
        self.observed = replace(self.observed, models=models)


def _held(needs: Needs) -> Mapping[Pool, int]:
    return {pool: need.own_bytes for pool, need in needs.items()}
