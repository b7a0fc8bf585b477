"""How an agent ends (R10): the first signal drains, the second does not wait, the third kills.

What is left for the next agent (R9) is drained, too, since its answers pass through this one.
"""

import asyncio
import os
from collections.abc import Callable, Coroutine, Mapping
from typing import Protocol

import structlog

from reconciler.apply.backends import Backends, BackendView
from reconciler.apply.effects import Effects
from reconciler.apply.stop import Hurry, Stopper
from reconciler.errors import XgenError
from reconciler.plan.desired import Timeouts
from reconciler.plan.ids import ModelName
from reconciler.plan.observed import Leftover

_PASSING_ON_SECONDS = 15.0
"""Load balancers have heard of the end by then, and Kubernetes ends a pod after 30 s."""

_log = structlog.get_logger("xgen.node")

Which = Callable[[ModelName], bool]
"""Of which models."""


class Away(Protocol):
    """Requests that other nodes work on; the proxy counts them."""

    def passing(self) -> str:
        """Which, in words; empty: none."""
        ...

    async def wait_none_away(self) -> None: ...


class Shutdown:
    """Counts the signals: the first sets `begun`, the next two raise the hurry.

    `cause`: the first one's name.
    """

    def __init__(self) -> None:
        self.cause = ""
        self.begun = asyncio.Event()
        self.hurry = Hurry()

    def signal(self, name: str) -> None:
        if not self.begun.is_set():
            self.cause = name
            self.begun.set()
        elif not self.hurry.hurried.is_set():
            _log.warning("ending without waiting for requests", signal=name)
            self.hurry.hurried.set()
        else:
            _log.warning("killing what is left", signal=name)
            self.hurry.killing.set()


async def stop_all(
    backends: Backends,
    effects: Effects,
    stopper: Stopper,
    timeouts: Mapping[ModelName, Timeouts],
    which: Which,
) -> list[str]:
    """Drain and stop the backends, and what earlier agents left, all at once.

    Returns what could not be stopped, in words.
    """
    effects.abort_fetches()
    await effects.settled()
    survivors: list[str] = []

    async def stop(each: BackendView | Leftover) -> None:
        limits = timeouts.get(each.model, Timeouts())
        try:
            await stopper.stop(each.nonce, limits, drain=isinstance(each, BackendView))
        except XgenError as exc:
            _log.error("a backend survives", model=each.model, error=str(exc))
            survivors.append(str(exc))

    async with asyncio.TaskGroup() as group:
        for each in _there(backends, which):
            group.create_task(stop(each), name=f"stop:{each.model}")
    return survivors


async def leave_all(
    backends: Backends,
    effects: Effects,
    stopper: Stopper,
    timeouts: Mapping[ModelName, Timeouts],
    which: Which,
) -> list[BackendView | Leftover]:
    """Let requests end, and every start and stop that is under way. Returns what lives on."""
    effects.abort_fetches()
    async with asyncio.TaskGroup() as group:
        group.create_task(effects.settled(), name="settled")
        for view in filter(lambda each: which(each.model), backends.live()):
            limit = timeouts.get(view.model, Timeouts()).drain
            group.create_task(stopper.drain(view.nonce, limit), name=f"drain:{view.model}")
    await backends.ends_settled(which)
    return _there(backends, which)


async def let_through(
    away: Away,
    hurry: Hurry,
    refuse: Callable[[], None],
    ended: asyncio.Event,
    *,
    seconds: float = Timeouts().drain,
    passing_on_seconds: float = _PASSING_ON_SECONDS,
) -> None:
    """Let the requests end that other nodes work on: their answers pass through this agent.

    New ones are passed on while anything keeps the agent up, its own backends until they have
    `ended` or such an answer, but no longer than `passing_on_seconds`; then `refuse` is called.
    `seconds`: for all of it.
    """

    async def nothing_stays() -> None:
        await ended.wait()
        await away.wait_none_away()

    by = asyncio.get_running_loop().time() + seconds
    await _first_of(nothing_stays(), hurry.hurried.wait(), seconds=min(seconds, passing_on_seconds))
    refuse()
    if not (waits_for := away.passing()):
        return
    left = max(0.0, by - asyncio.get_running_loop().time())
    _log.info(
        "new requests are refused; waiting for answers of other nodes that pass through this one",
        backends="ended" if ended.is_set() else "still end",
        waits_for=waits_for,
        seconds=round(left),
    )
    await _first_of(away.wait_none_away(), hurry.hurried.wait(), seconds=left)
    if unfinished := away.passing():
        _log.warning("answers of other nodes are waited for no longer", unfinished=unfinished)


async def _first_of(*ways: Coroutine[None, None, object], seconds: float) -> None:
    waits = {asyncio.ensure_future(each) for each in ways}
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in waits:
            task.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


def _there(backends: Backends, which: Which) -> list[BackendView | Leftover]:
    every: list[BackendView | Leftover] = [*backends.live(), *backends.leftovers()]
    return [each for each in every if which(each.model)]


def why_not_left(*, supervised: bool) -> str | None:
    """Why backends die with this agent whatever it does; None: they do not."""
    if os.getpid() == 1:
        who = "the agent is"
    elif supervised and os.getppid() == 1:
        who = "the supervisor is"
    else:
        return None
    return (
        f"{who} process 1 of its pid namespace, as in a container: when that ends, the kernel "
        "kills every other process in it, so no backend can be left running"
    )
