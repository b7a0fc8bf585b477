"""How long a model will serve nothing while its actions are carried out (PURE).

Its files are brought before anything is stopped (R5), so a download is no downtime of what serves;
it is part of the time until what is started is ready. Only where there is no room for both, and the
manifest lets go of what serves (`keep_last_good: false`), does the download come after the stop.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from reconciler.plan.actions import Action, FetchFiles, StartBackend, StopBackend
from reconciler.plan.durations import Expected
from reconciler.plan.ids import Nonce


@dataclass(frozen=True, slots=True, kw_only=True)
class Downtime:
    """`seconds`: the expected gap in service; 0.0: none; None: not known, or `for_good`: nothing is
    to serve the model after it.

    `ready_seconds`: until what is started serves, its download counted; None: not known, or nothing
    is started. `reason`: for operators, as a clause.
    """

    seconds: float | None
    reason: str
    for_good: bool = False
    ready_seconds: float | None = None


def downtime(
    actions: Sequence[Action],
    *,
    serving: Nonce | None,
    load: Expected,
    stop: Expected,
    wait_seconds: float = 0.0,
    download_seconds: float | None = 0.0,
) -> Downtime:
    """Of one model's actions, in their order. `serving`: the process that serves it; None: none.

    `load`, `stop`, `wait_seconds`: what `durations` expects of it. `download_seconds`: None: not
    known.
    """
    kinds = [each for each in actions if _counts(each, serving)]
    starts = any(isinstance(each, StartBackend) for each in kinds)
    stops = any(isinstance(each, StopBackend) for each in kinds)
    if not stops:
        ready = _sum(download_seconds, load.seconds) if starts else None
        reason = "it serves on" if serving is not None else "nothing serves it now"
        if starts:
            reason += f"; a load takes {_told(load)}"
        return Downtime(seconds=0.0, reason=reason, ready_seconds=ready)
    if not starts:
        return Downtime(seconds=None, reason="it is stopped for good", for_good=True)
    if isinstance(kinds[0], StartBackend):
        ready = _sum(download_seconds, load.seconds)
        reason = "the new process serves before the old one stops"
        return Downtime(seconds=0.0, reason=reason, ready_seconds=ready)
    after_stop = _fetches_after_stop(actions, serving)
    gap = _sum(stop.seconds or 0.0, wait_seconds, load.seconds)
    ready = _sum(download_seconds, gap)
    return Downtime(
        seconds=ready if after_stop else gap,
        reason=_recreated(load, stop, wait_seconds, after_stop),
        ready_seconds=ready,
    )


def _counts(action: Action, serving: Nonce | None) -> bool:
    if isinstance(action, StopBackend):
        return action.nonce == serving
    return isinstance(action, StartBackend)


def _fetches_after_stop(actions: Sequence[Action], serving: Nonce | None) -> bool:
    gone = False
    for each in actions:
        gone = gone or (isinstance(each, StopBackend) and each.nonce == serving)
        if gone and isinstance(each, FetchFiles):
            return True
    return False


def _recreated(load: Expected, stop: Expected, wait_seconds: float, after_stop: bool) -> str:
    said = ["it stops before the new process starts"]
    if after_stop:
        said = ["it stops to make room for the download"]
    if stop.seconds is None:
        said.append(f"the stop is not counted ({stop.why})")
    else:
        said.append(f"the stop takes {_told(stop)}")
    if wait_seconds:
        said.append(f"its memory is free after {wait_seconds:.0f} s more")
    said.append(f"the load takes {_told(load)}")
    return "; ".join(said)


def _told(expected: Expected) -> str:
    if expected.seconds is None:
        return f"a time that is not known ({expected.why})"
    return f"{expected.seconds:.0f} s ({expected.why})"


def _sum(*parts: float | None) -> float | None:
    total = 0.0
    for part in parts:
        if part is None:
            return None
        total += part
    return total
