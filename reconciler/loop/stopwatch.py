"""How long loads and stops take on this node, as the loop sees them come to their end."""

from collections.abc import Collection
from dataclasses import dataclass, replace

from reconciler.apply.held import BackendView
from reconciler.apply.outcomes import BackendStopped, EffectFailed, FilesFetched, Outcome
from reconciler.plan.desired import DesiredModel, ModelSpec
from reconciler.plan.durations import UNTIMED, Durations, FetchTime, LoadTime, StopTime
from reconciler.plan.ids import ModelName, Nonce

KEPT = 8
"""Of each kind, of a model: enough for a median, few enough to be of the node as it is now."""
_LONGEST_WAIT_SECONDS = 300.0
"""What starts later did not wait for its memory alone."""


@dataclass(slots=True)
class _Page:
    """`ended_at`: when its process ended, to make way for another; None: nothing waits for that.
    `fetched`: its files have come from the hub, and it has not loaded them since. `timed`:
    processes whose load counts already, or never does."""

    past: Durations = UNTIMED
    ended_at: float | None = None
    fetched: bool = False
    timed: frozenset[Nonce] = frozenset()


class Stopwatch:
    """Kept by the loop alone (R1)."""

    def __init__(self) -> None:
        self._pages: dict[ModelName, _Page] = {}

    def past(self, model: ModelName) -> Durations:
        page = self._pages.get(model)
        return page.past if page is not None else UNTIMED

    def restore(self, model: ModelName, past: Durations) -> None:
        """What an agent before this one has timed."""
        self._page(model).past = past

    def keep_only(self, models: Collection[ModelName]) -> None:
        for gone in self._pages.keys() - set(models):
            del self._pages[gone]

    def book(self, outcome: Outcome, *, at: float) -> None:
        page = self._page(outcome.model)
        page.ended_at = None
        match outcome:
            case FilesFetched():
                page.fetched = True  # though another model of the same files had begun it
                self._note_fetch(page, outcome)
            case BackendStopped():
                if outcome.failure is None:
                    page.ended_at = at
                    self._note_stop(page, outcome)
            case EffectFailed():
                pass

    def see(self, model: DesiredModel, views: Collection[BackendView]) -> None:
        """Time what has loaded since the last look. How long an adopted one took is not known."""
        page = self._page(model.name)
        for view in views:
            if view.nonce in page.timed or not view.was_loaded:
                continue
            page.timed |= {view.nonce}
            if view.loaded_at is None or view.adopted is not None:
                continue
            if view.instance.spec_hash == model.spec_hash:
                self._note_load(page, view, view.loaded_at - view.started_at, model.spec)
        page.timed &= {view.nonce for view in views}
        if not model.enabled or any(view.was_loaded for view in views):
            page.ended_at = None

    def _note_load(self, page: _Page, view: BackendView, seconds: float, spec: ModelSpec) -> None:
        waited = view.started_at - page.ended_at if page.ended_at is not None else 0.0
        load = LoadTime(
            backend=view.launch.backend,
            source=spec.source,
            file=spec.file,
            spec_hash=view.instance.spec_hash,
            seconds=_rounded(seconds),
            after_fetch=page.fetched,
            waited_seconds=_rounded(waited) if waited <= _LONGEST_WAIT_SECONDS else 0.0,
        )
        page.ended_at, page.fetched = None, False
        page.past = replace(page.past, loads=(*page.past.loads, load)[-KEPT:])

    def _note_fetch(self, page: _Page, fetched: FilesFetched) -> None:
        if fetched.size_bytes == 0:
            return
        fetch = FetchTime(size_bytes=fetched.size_bytes, seconds=_rounded(fetched.seconds))
        page.past = replace(page.past, fetches=(*page.past.fetches, fetch)[-KEPT:])

    def _note_stop(self, page: _Page, stopped: BackendStopped) -> None:
        if stopped.drain_seconds is None or stopped.stop_seconds is None:
            return
        stop = StopTime(
            drain_seconds=_rounded(stopped.drain_seconds), seconds=_rounded(stopped.stop_seconds)
        )
        page.past = replace(page.past, stops=(*page.past.stops, stop)[-KEPT:])

    def _page(self, model: ModelName) -> _Page:
        page = self._pages.get(model)
        if page is None:
            page = self._pages[model] = _Page()
        return page


def _rounded(seconds: float) -> float:
    """Milliseconds are enough; a clock of another thread may be a trifle ahead."""
    return max(0.0, round(seconds, 3))
