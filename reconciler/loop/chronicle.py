"""Tells what the loop sees and does as events, each of them once and not again at every tick."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from reconciler.apply.backends import BackendExited, BackendView
from reconciler.apply.leftovers import Ended
from reconciler.apply.liveness import BackendHung
from reconciler.apply.outcomes import EffectFailed, FilesFetched, Outcome
from reconciler.backend.inventory import Inventory, called
from reconciler.cache.news import FileDoubted, FilesEvicted, News
from reconciler.errors import XgenError
from reconciler.events import EventKind, Journal, Level, Scalar
from reconciler.jobs.news import (
    ImportCancelled,
    ImportCompleted,
    ImportFailed,
    ImportStarted,
)
from reconciler.jobs.news import News as ImportNews
from reconciler.loop.commands import Reconcile
from reconciler.loop.pace import give_way
from reconciler.plan.actions import Action, OfOneProcess, Outlook, StartBackend, Target
from reconciler.plan.ids import ModelName, Nonce
from reconciler.plan.observed import Adoption, Failure
from reconciler.plan.phase import State
from reconciler.plan.wording import span

_WAITING = frozenset({State.PENDING, State.ERROR, State.BLOCKED})
"""States whose reason says what is waited for; the reasons of others tell how far they are."""
_TROUBLE = frozenset({State.ERROR, State.BLOCKED})


@dataclass(frozen=True, slots=True)
class _Told:
    state: State
    reason: str

    def differs(self, state: State, reason: str) -> bool:
        return state is not self.state or (state in _WAITING and reason != self.reason)


class Chronicle:
    """What was told last of each model, to tell only what is new."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._started: set[Nonce] = set()
        self._loaded: set[Nonce] = set()
        self._states: dict[ModelName, _Told] = {}
        self._targets: dict[ModelName, _Told] = {}
        self._waits: tuple[str, ...] = ()
        self._fault = ""
        self._pushes: dict[ModelName, str] = {}

    def backends(self, views: Iterable[BackendView]) -> None:
        """What lives: each start, or adoption, and each load is told when it is first seen."""
        for view in views:
            if view.nonce not in self._started:
                self._started.add(view.nonce)
                if view.adopted is not None:
                    self._backend_adopted(view, view.adopted)
                else:
                    self._backend_started(view)
            if view.loaded_at is not None and view.nonce not in self._loaded:
                self._loaded.add(view.nonce)
                self._backend_loaded(view, view.loaded_at)

    def ended_unseen(self, ended: Ended) -> None:
        """What an earlier agent had started."""
        record = ended.record
        self._journal.record(
            EventKind.BACKEND_LOST,
            f"it ended while no agent ran: {ended.why}",
            model=record.model,
            level=Level.WARNING if ended.unseen else Level.INFO,
            pid=record.pid,
            spec_hash=record.spec_hash,
            log=record.log,
        )

    def hung(self, hung: BackendHung) -> None:
        self._journal.record(
            EventKind.BACKEND_HUNG,
            hung.reason,
            model=hung.model,
            level=Level.WARNING,
            pid=hung.pid,
            stalled_seconds=round(hung.stalled_seconds, 3),
            in_flight=hung.in_flight,
        )

    def exited(self, exited: BackendExited) -> None:
        self._started.discard(exited.nonce)
        self._loaded.discard(exited.nonce)
        self._journal.record(
            EventKind.BACKEND_EXITED,
            exited.reason,
            model=exited.model,
            level=Level.INFO if exited.during == "stop" else Level.WARNING,
            pid=exited.pid,
            during=exited.during,
            code=exited.code,
            signal=exited.signal,
            uptime_seconds=round(exited.uptime_seconds, 3),
        )

    def outcome(self, outcome: Outcome) -> None:
        """A stop that went well is told by its backend's exit."""
        if isinstance(outcome, FilesFetched):
            self._journal.record(
                EventKind.FILES_FETCHED,
                "the files are in the cache",
                model=outcome.model,
                seconds=round(outcome.seconds, 3),
                size_bytes=outcome.size_bytes,
            )
        elif isinstance(outcome, EffectFailed):
            self._journal.record(
                EventKind.EFFECT_FAILED,
                outcome.reason,
                model=outcome.model,
                level=Level.WARNING,
                during=outcome.during,
                permanent=outcome.permanent,
            )

    def cache_changed(self, news: News) -> None:
        """Files that went by themselves."""
        if isinstance(news, FilesEvicted):
            self._journal.record(
                EventKind.FILES_EVICTED,
                news.reason,
                prefix=news.prefix,
                digest=news.digest,
                files=news.files,
                size_bytes=news.size_bytes,
            )
        else:
            self._journal.record(
                EventKind.FILE_DOUBTED if isinstance(news, FileDoubted) else EventKind.FILE_ROTTEN,
                news.reason,
                model=ModelName(news.models[0]) if len(news.models) == 1 else None,
                level=Level.WARNING,
                prefix=news.prefix,
                digest=news.digest,
                path=news.path,
                models=", ".join(news.models) or None,
                size_bytes=news.size_bytes,
            )

    def imported(self, news: ImportNews, model: ModelName | None) -> None:
        """`model`: whose files it brings; None: nobody's here, or those of several."""
        match news:
            case ImportStarted():
                self._import(EventKind.IMPORT_STARTED, news, model)
            case ImportCompleted(job=job, seconds=seconds):
                self._import(
                    EventKind.IMPORT_COMPLETED,
                    news,
                    model,
                    seconds=round(seconds, 3),
                    size_bytes=job.total_bytes,
                    was_there=job.was_there,
                )
            case ImportFailed():
                self._import(EventKind.IMPORT_FAILED, news, model, **_how_far(news))
            case ImportCancelled():
                self._import(EventKind.IMPORT_CANCELLED, news, model, **_how_far(news))

    def _import(
        self, kind: EventKind, news: ImportNews, model: ModelName | None, **data: Scalar
    ) -> None:
        job = news.job
        self._journal.record(
            kind,
            news.reason,
            model=model,
            level=Level.WARNING if kind is EventKind.IMPORT_FAILED else Level.INFO,
            job=job.id,
            repository=job.source,
            file=job.file,
            prefix=job.prefix,
            **data,
        )

    def begun(self, action: Action) -> None:
        pid = action.pid if isinstance(action, OfOneProcess) else None
        spec = action.instance.spec_hash if isinstance(action, StartBackend) else None
        self._journal.record(
            EventKind.ACTION_BEGUN,
            action.reason,
            model=action.model,
            action=type(action).__name__,
            pid=pid,
            spec_hash=spec,
        )

    def refused(self, action: Action, error: XgenError) -> None:
        """An action of the plan that could not even begin."""
        self._journal.record(
            EventKind.ACTION_REFUSED,
            str(error),
            model=action.model,
            level=Level.ERROR,
            action=type(action).__name__,
        )

    def engines(self, before: Inventory, now: Inventory) -> None:
        """Builds that came, went, or were replaced."""
        for build in sorted(set(now.builds) - set(before.builds), key=called):
            old = before.successor(build)
            was = f"; it was {old.detail}" if old is not None else ""
            self._journal.record(
                EventKind.ENGINE_CHANGED,
                f"{called(build)} is {build.detail} now{was}; what runs is left as it is",
                engine=build.name,
                backend=build.id,
                version=build.version,
                before=old.version if old is not None else None,
            )
        for build in before.builds:
            if now.successor(build) is None:
                self._journal.record(
                    EventKind.ENGINE_LOST,
                    f"{called(build)} cannot be started any more: {now.why_gone(build)}",
                    level=Level.WARNING,
                    engine=build.name,
                    backend=build.id,
                    before=build.version,
                )

    def gpus(self, notes: Sequence[str]) -> None:
        """What is amiss with them; nothing any more: they are well again."""
        said = "; ".join(notes) or "nothing is amiss any more"
        level = Level.WARNING if notes else Level.INFO
        self._journal.record(EventKind.GPUS_CHANGED, said, level=level)

    def tick_failed(self, error: Exception) -> None:
        """A fault of ours, which each further tick may have again."""
        if (fault := f"a tick ended with an error of our own: {error!r}") != self._fault:
            self._fault = fault
            self._journal.record(EventKind.TICK_FAILED, fault, level=Level.ERROR)

    def tick_ended(self) -> None:
        """The fault before, if there was one, is over."""
        self._fault = ""

    def asked(self, command: Reconcile) -> None:
        self._journal.record(
            EventKind.COMMAND_RECEIVED,
            command.sentence,
            model=command.model,
            command="reconcile",
            retry=command.retry,
        )

    def forgiven(self, model: ModelName, failure: Failure, why: str) -> None:
        self._journal.record(
            EventKind.FAILURE_FORGIVEN,
            f"{why}; it had failed: {failure.reason}",
            model=model,
            count=failure.count,
            permanent=failure.permanent,
        )

    def noticed(
        self, pushes: Mapping[ModelName, str], *, unseen: Collection[ModelName] = ()
    ) -> None:
        """The newer pushes in the hub, and what becomes of each; `unseen`: or why none can be
        looked for."""
        before, self._pushes = self._pushes, dict(pushes)
        for model, reason in sorted(pushes.items()):
            if before.get(model) == reason:
                continue
            if model in unseen:
                kind, level = EventKind.PUSHES_UNSEEN, Level.WARNING
            else:
                kind, level = EventKind.PUSH_NOTICED, Level.INFO
            self._journal.record(kind, reason, model=model, level=level)

    async def planned(self, outlooks: Iterable[Outlook], waits: Sequence[str]) -> None:
        """What the plan says of every model, and what holds up the node as a whole."""
        states, targets = self._states, self._targets
        self._states, self._targets = {}, {}
        for number, outlook in enumerate(outlooks):
            await give_way(number)
            name = outlook.model
            self._tell_state(outlook, states.get(name))
            self._states[name] = _Told(outlook.state, outlook.reason)
            if outlook.target is not None:
                self._tell_target(name, outlook.target, targets.get(name))
                self._targets[name] = _Told(outlook.target.state, outlook.target.reason)
        for number, gone in enumerate(sorted(states.keys() - self._states.keys())):
            await give_way(number)
            self._journal.record(
                EventKind.MODEL_GONE,
                "nothing of it is left on this node",
                model=gone,
                before=states[gone].state.value,
            )
        self._tell_waits(tuple(waits))

    def _backend_started(self, view: BackendView) -> None:
        build = view.launch.build
        self._journal.record(
            EventKind.BACKEND_STARTED,
            f"{called(build) if build else view.launch.backend} runs as pid {view.pid}",
            model=view.model,
            pid=view.pid,
            port=view.launch.port,
            spec_hash=view.instance.spec_hash,
            version=build.version if build else None,
        )
        for warning in view.launch.warnings:
            self._journal.record(
                EventKind.BACKEND_WARNED,
                warning,
                model=view.model,
                level=Level.WARNING,
                pid=view.pid,
                spec_hash=view.instance.spec_hash,
            )

    def _backend_adopted(self, view: BackendView, adopted: Adoption) -> None:
        age = adopted.at - view.started_at
        was = "served" if adopted.was_loaded else "was loading"
        self._journal.record(
            EventKind.BACKEND_ADOPTED,
            f"pid {view.pid} {was} when its agent ended, {span(age)} after its start; this agent "
            "goes on with it once it answers",
            model=view.model,
            pid=view.pid,
            port=view.launch.port,
            spec_hash=view.instance.spec_hash,
            uptime_seconds=round(age, 3),
            was_loaded=adopted.was_loaded,
        )

    def _backend_loaded(self, view: BackendView, at: float) -> None:
        since, what = view.started_at, "its start"
        if view.adopted is not None:
            since, what = view.adopted.at, "this agent found it"
        self._journal.record(
            EventKind.BACKEND_LOADED,
            f"gave its first real answer {at - since:.1f} s after {what}",
            model=view.model,
            pid=view.pid,
            load_seconds=round(at - since, 3) if view.adopted is None else None,
        )

    def _tell_state(self, now: Outlook, before: _Told | None) -> None:
        if before is not None and not before.differs(now.state, now.reason):
            return
        same = before is not None and before.state is now.state
        self._journal.record(
            EventKind.MODEL_WAIT_CHANGED if same else EventKind.MODEL_STATE_CHANGED,
            now.reason,
            model=now.model,
            level=Level.WARNING if now.state in _TROUBLE else Level.INFO,
            state=now.state.value,
            before=before.state.value if before else None,
        )

    def _tell_target(self, model: ModelName, now: Target, before: _Told | None) -> None:
        if before is not None and not before.differs(now.state, now.reason):
            return
        self._journal.record(
            EventKind.TARGET_CHANGED,
            now.reason,
            model=model,
            level=Level.WARNING if now.state in _TROUBLE else Level.INFO,
            state=now.state.value,
            spec_hash=now.spec_hash,
        )

    def _tell_waits(self, waits: tuple[str, ...]) -> None:
        if waits == self._waits:
            return
        self._waits = waits
        self._journal.record(
            EventKind.NODE_WAIT_CHANGED,
            "; ".join(waits) if waits else "nothing holds up the node any more",
        )


def _how_far(news: ImportFailed | ImportCancelled) -> dict[str, Scalar]:
    """An import that has ended early."""
    return {
        "during": news.during.value,
        "done_bytes": news.job.done_bytes,
        "total_bytes": news.job.total_bytes,
        "seconds": None if news.seconds is None else round(news.seconds, 3),
    }
