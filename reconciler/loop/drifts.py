"""What came to be otherwise than this node has made it, without anybody having asked for that: what
it was, and what was done about it. Each is told when it is found, and when it is over.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from reconciler.apply.backends import BackendExited
from reconciler.apply.leftovers import Ended
from reconciler.cache.news import FileDoubted, FileRotten, News
from reconciler.condition import Reason
from reconciler.events import EventKind, Journal, Level
from reconciler.loop.clock import Clock
from reconciler.loop.strangers import Stranger
from reconciler.plan.ids import ModelName
from reconciler.plan.phase import State
from reconciler.status import Drift, DriftKind, ModelStatus

_FROM_OUTSIDE = frozenset({"SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"})
"""Signals that somebody sends; others are faults of the process."""
_HOPELESS = (State.ERROR, State.BLOCKED)
_RAILS = (Reason.SUSPENDED, Reason.HELD)
_LEFT = "nothing is restarted for it"
_TOLERATED = "nothing is killed; what it holds counts as used"

_MOVING = frozenset({DriftKind.GPU_STRANGER, DriftKind.FILES_CHANGED})
"""What is said of them has figures in it, or is known better after a look: that is no news."""

_Key = tuple[DriftKind, ModelName | None, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sighting:
    """What a look at the node finds beside what its models' status says. `strangers`: on its GPUs.
    `files_gone`: models whose files have gone from under them, and how, as a clause."""

    strangers: Sequence[Stranger] = ()
    files_gone: Mapping[ModelName, str] = field(default_factory=dict)


NOTHING_SIGHTED = Sighting()


class Drifts:
    """Kept by the loop alone."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self._known: dict[_Key, Drift] = {}
        self._lasting: dict[_Key, str] = {}
        self._pids: Mapping[ModelName, frozenset[int]] = {}
        self._pids_before: dict[_Key, frozenset[int]] = {}
        """At the look before the one that found it."""

    def exited(self, exited: BackendExited) -> None:
        """An end that nobody here had asked for, of what served, or by somebody's signal."""
        if exited.during == "run" or (exited.during == "load" and exited.signal in _FROM_OUTSIDE):
            self._note(DriftKind.PROCESS_ENDED, exited.model, exited.pid, exited.reason)

    def ended_unseen(self, ended: Ended) -> None:
        """The same, while no agent ran."""
        record = ended.record
        if ended.unseen and record.pid is not None:
            why = f"it ended while no agent ran: {ended.why}"
            self._note(DriftKind.PROCESS_ENDED, record.model, record.pid, why)

    def cache_changed(self, news: News) -> None:
        """A file that is not what was pushed, or of which nobody can tell."""
        if isinstance(news, FileRotten):
            what = f"{news.path} of {news.prefix} is not what was pushed: {news.cause}"
        elif isinstance(news, FileDoubted):
            what = news.what
        else:
            return
        for model in news.models:
            self._lasting[DriftKind.FILES_CHANGED, ModelName(model), ""] = what

    def see(
        self, models: Iterable[ModelStatus], sighting: Sighting
    ) -> Callable[[ModelName | None], tuple[Drift, ...]]:
        """What there is now: of a model, or of the node (None)."""
        listed = {model.name: model for model in models}
        for name, how in sighting.files_gone.items():
            self._lasting.setdefault((DriftKind.FILES_CHANGED, name, ""), how)
        found = dict(_of_models(self._lasting, listed))
        for key in found.keys() - self._pids_before.keys():
            if key[1] is not None:
                self._pids_before[key] = self._pids.get(key[1], frozenset())
        over = {key for key in self._lasting if _is_over(key, listed, sighting.files_gone.keys())}
        now = self._clock.wall(self._clock.monotonic())
        serving_on: dict[_Key, str] = {}
        for key in over & found.keys() - self._known.keys():  # it came and went unseen
            drift = found[key]
            if (on := self._serving_on(drift, listed)) is not None:
                serving_on[key] = on
                drift = replace(drift, done=_beside(on, drift, listed))
            self._known[key] = self._since(key, drift, now)
        self._lasting = {key: what for key, what in self._lasting.items() if key not in over}
        found = {key: drift for key, drift in found.items() if key not in over}
        found |= dict(_launches(listed.values()))
        found |= {_key(each): _of_gpu(each) for each in sighting.strangers}
        self._tell_over(found, listed, serving_on)
        self._pids = {name: _pids(model) for name, model in listed.items()}
        self._known = {key: self._since(key, drift, now) for key, drift in found.items()}
        self._pids_before = {
            key: pid for key, pid in self._pids_before.items() if key in self._lasting
        }
        by_model: dict[ModelName | None, tuple[Drift, ...]] = {}
        for each in self._known.values():
            by_model[each.model] = (*by_model.get(each.model, ()), each)
        return lambda name: by_model.get(name, ())

    def _serving_on(self, drift: Drift, listed: Mapping[ModelName, ModelStatus]) -> str | None:
        """Who serves as before, beside a process of the model that has ended; None: nobody."""
        if drift.kind is not DriftKind.PROCESS_ENDED or drift.model is None:
            return None
        pid = model.pid if (model := listed.get(drift.model)) is not None else None
        return f"pid {pid} serves on" if pid in self._pids.get(drift.model, ()) else None

    def _over(self, key: _Key, drift: Drift, listed: Mapping[ModelName, ModelStatus]) -> str:
        """Files come again under a process that serves on."""
        model = listed.get(drift.model) if drift.model is not None else None
        if drift.kind is not DriftKind.FILES_CHANGED or model is None:
            return _over(drift, listed)
        if model.state is State.LOADED and model.pid in self._pids_before.get(key, ()):
            return f"its files are here and were looked at; pid {model.pid} has served on"
        return _over(drift, listed)

    def _note(self, kind: DriftKind, model: ModelName, pid: int, what: str) -> None:
        self._lasting[kind, model, ""] = f"pid {pid}: {what}"

    def _since(self, key: _Key, drift: Drift, now: str) -> Drift:
        before = self._known.get(key)
        if before is not None and (before.what == drift.what or drift.kind in _MOVING):
            return replace(drift, since=before.since)
        self._journal.record(
            EventKind.DRIFT_FOUND,
            f"{drift.what}; {drift.done}",
            model=drift.model,
            level=Level.WARNING,
            drift=drift.kind.value,
            what=drift.what,
            done=drift.done,
            pid=drift.pid,
            size_bytes=drift.size_bytes,
        )
        return replace(drift, since=now)

    def _tell_over(
        self,
        found: Mapping[_Key, Drift],
        listed: Mapping[ModelName, ModelStatus],
        serving_on: Mapping[_Key, str],
    ) -> None:
        for key in self._known.keys() - found.keys():
            drift = self._known[key]
            self._journal.record(
                EventKind.DRIFT_ENDED,
                f"{serving_on.get(key) or self._over(key, drift, listed)}; it was: {drift.what}",
                model=drift.model,
                drift=drift.kind.value,
                pid=drift.pid,
            )


def _is_over(
    key: _Key, listed: Mapping[ModelName, ModelStatus], files_gone: Collection[ModelName]
) -> bool:
    """Once the model serves again, or is not to."""
    kind, name, _ = key
    model = listed.get(name) if name is not None else None
    if model is None or model.state is State.DISABLED:
        return True
    if kind is DriftKind.FILES_CHANGED:
        serves = model.state is State.LOADED and model.target is None
        return serves and name not in files_gone
    return model.state is State.LOADED


def _of_models(
    lasting: Mapping[_Key, str], listed: Mapping[ModelName, ModelStatus]
) -> Iterable[tuple[_Key, Drift]]:
    for key, what in lasting.items():
        kind, name, _ = key
        model = listed.get(name) if name is not None else None
        if model is not None:
            done = _mending(kind, model)
            yield key, Drift(kind=kind, model=name, what=what, done=done, since="")


def _mending(kind: DriftKind, model: ModelStatus) -> str:
    """What is done about it, by what the model does: on its way back to the last good spec that
    counts, and not what becomes of the manifest's."""
    target = None if model.degraded is not None else model.target
    if target is not None and target.state in _HOPELESS and model.state is not State.LOADED:
        target = None  # the last good one is tried, and was not loaded yet
    state = target.state if target is not None else model.state
    match state:
        case State.CACHING:
            return "its files are looked at, and what is missing or in doubt is fetched"
        case State.LOADED | State.PENDING if kind is DriftKind.FILES_CHANGED:
            return "its files are to be looked at"
        case State.LOADING | State.LOADED:
            return "its process was started again"
        case State.UNLOADING:
            return "what is left of its process is being ended"
        case State.ERROR if model.retry_at is not None:
            return f"it is tried again at {model.retry_at}"
        case State.BLOCKED:
            return "it is not started again: it is blocked"
        case _ if any(each.reason in _RAILS for each in model.conditions):
            return "it is started again once nothing holds that back"
        case _:
            return "it is to be started again"


def _beside(on: str, drift: Drift, listed: Mapping[ModelName, ModelStatus]) -> str:
    """The same, of one that was to take the place of another, which serves on."""
    model = listed.get(drift.model) if drift.model is not None else None
    comes = model is not None and model.target is not None and model.degraded is None
    return f"{on}; {drift.done}" if comes else on


def _pids(model: ModelStatus) -> frozenset[int]:
    """Of its processes."""
    coming = model.target.pid if model.target is not None else None
    every = (model.pid, coming, *(each.pid for each in model.draining))
    return frozenset(pid for pid in every if pid is not None)


def _launches(models: Iterable[ModelStatus]) -> Iterable[tuple[_Key, Drift]]:
    for model in models:
        engine = model.engine
        if engine is not None and engine.drift is not None:
            kind = DriftKind.LAUNCH_DIFFERS
            yield (
                (kind, model.name, ""),
                Drift(kind=kind, model=model.name, what=engine.drift, done=_LEFT, since=""),
            )


def _key(stranger: Stranger) -> _Key:
    return DriftKind.GPU_STRANGER, None, f"{stranger.gpu} {stranger.pid}"


def _of_gpu(stranger: Stranger) -> Drift:
    return Drift(
        kind=DriftKind.GPU_STRANGER,
        model=None,
        what=stranger.what,
        done=_TOLERATED,
        since="",
        pid=stranger.pid,
        size_bytes=stranger.held_bytes,
    )


def _over(drift: Drift, listed: Mapping[ModelName, ModelStatus]) -> str:
    if drift.kind is DriftKind.GPU_STRANGER:
        return "it has left the GPU"
    model = listed.get(drift.model) if drift.model is not None else None
    if model is None:
        return "the model has gone"
    if model.state is State.DISABLED:
        return "the model is disabled"
    if drift.kind is DriftKind.LAUNCH_DIFFERS:
        return "what runs is what would be started"
    return f"it serves again (pid {model.pid})"
