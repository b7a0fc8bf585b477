"""What a service manager hears of an agent's life: ready, a line of status, alive, ending.

It hears that the agent lives only while the loop goes round: an event loop that is blocked sends
nothing, and of a loop that ends no tick any more (pulse.py) nothing is sent.
"""

import asyncio
from collections.abc import Callable, Iterator
from typing import Protocol

import structlog

from reconciler.apply.within import within
from reconciler.node.service_manager import ServiceManager
from reconciler.plan.phase import State
from reconciler.pulse import Beat
from reconciler.status import ModelStatus, Status

_log = structlog.get_logger("xgen.node")
_LOOK_SECONDS = 1.0
_STARTING_LOOK_SECONDS = 0.05
_EXTENSION_SECONDS = 30.0
_EXTEND_EVERY_SECONDS = 10.0
_NAMED = 3
"""Models that a line of status names, of those that do not serve."""


class Observed(Protocol):
    """An agent, as far as its manager is told."""

    def beat(self) -> Beat: ...
    def status(self) -> Status: ...

    def answers(self) -> bool:
        """Whether its HTTP side accepts connections."""
        ...


class Reporting:
    """`ending`: set when the agent's end begins. `now`: monotonic seconds."""

    def __init__(
        self,
        manager: ServiceManager,
        agent: Observed,
        *,
        ending: asyncio.Event,
        now: Callable[[], float],
    ) -> None:
        self._manager = manager
        self._agent = agent
        self._ending = ending
        self._now = now
        self._ready = False
        self._stopping = False
        self._said = ""
        self._fed_at = self._extended_at = float("-inf")
        watchdog = manager.watchdog_seconds
        self._feed_every = watchdog / 2 if watchdog is not None else None

    async def run(self) -> None:
        """Until cancelled. A fault of ours ends it, not the agent: that is for who watches it."""
        try:
            await self._report()
        except Exception:  # noqa: BLE001  what is told of an agent must not be what ends it
            _log.exception(f"the service manager hears nothing more of this agent{self._fate()}")

    async def _report(self) -> None:
        while True:
            if news := list(self.news()):
                self._manager.tell(*news)
            pause = self._pause()
            if self._ending.is_set():
                await asyncio.sleep(pause)
            else:
                await within(pause, self._ending)

    def news(self) -> Iterator[str]:
        """What is to be said now, as assignments of sd_notify."""
        beat, now = self._agent.beat(), self._now()
        if not self._ready and beat.as_of is not None and self._agent.answers():
            self._ready = True
            yield "READY=1"
        if not self._stopping and self._ending.is_set():
            self._stopping = True
            yield "STOPPING=1"
        if (said := told_of(self._agent.status(), beat)) != self._said:
            self._said = said
            yield f"STATUS={said}"
        if beat.silent_since is not None:
            return
        if self._feed_every is not None and now - self._fed_at >= self._feed_every:
            self._fed_at = now
            yield "WATCHDOG=1"
        if self._stopping and now - self._extended_at >= _EXTEND_EVERY_SECONDS:
            self._extended_at = now
            yield f"EXTEND_TIMEOUT_USEC={_EXTENSION_SECONDS * 1_000_000:.0f}"

    def _fate(self) -> str:
        """Of an agent of which nothing is heard."""
        if not self._ready:
            return ", which goes on until the time for its start is over"
        if self._feed_every is not None:
            return (
                f", which goes on until the watchdog ends it, in {2 * self._feed_every:g} s or less"
            )
        return ", which goes on"

    def _pause(self) -> float:
        if not self._ready:
            return _STARTING_LOOK_SECONDS
        if self._feed_every is None:
            return _LOOK_SECONDS
        left = self._fed_at + self._feed_every - self._now()
        return min(_LOOK_SECONDS, left) if left > 0 else _LOOK_SECONDS


def told_of(status: Status, beat: Beat) -> str:
    """One line for `systemctl status`: the revision, and how many models serve."""
    if beat.silent_since is not None:
        return f"the loop has ended no tick since {beat.as_of or 'the start'}"
    if beat.as_of is None:
        return "starting: looking for the backends that are there"
    wanted = [model for model in status.models if model.detail.enabled]
    loaded = sum(model.state is State.LOADED for model in wanted)
    applied = status.revision.applied
    parts = [
        f"revision {applied[:12]}" if applied else "no revision applied yet",
        f"{loaded} of {len(wanted)} models loaded",
        *_not_loaded(wanted),
    ]
    said = ", ".join(parts)
    return " ".join(f"{'ending: ' if status.draining else ''}{said}".split())


def _not_loaded(models: list[ModelStatus]) -> Iterator[str]:
    others = [model for model in models if model.state is not State.LOADED]
    for model in others[:_NAMED]:
        yield f"{model.name} {model.state}"
    if len(others) > _NAMED:
        yield f"and {len(others) - _NAMED} more"
