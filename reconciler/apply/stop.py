"""Stopping one backend: its requests end first, unless somebody is in a hurry (R10)."""

import asyncio
from dataclasses import dataclass
from typing import Protocol

import structlog

from reconciler.apply.backends import Backends
from reconciler.plan.desired import Timeouts
from reconciler.plan.ids import Nonce

_log = structlog.get_logger("xgen.apply")


class Traffic(Protocol):
    """How many requests a backend is answering; the proxy counts them."""

    def in_flight(self, nonce: Nonce) -> int: ...
    async def wait_idle(self, nonce: Nonce) -> None: ...


class Hurry:
    """How urgent the end is: `hurried` skips the drain, `killing` the ladder's waits."""

    def __init__(self) -> None:
        self.hurried = asyncio.Event()
        self.killing = asyncio.Event()


class Recall:
    """Takes back one stop for as long as it drains; what comes after its first signal is late."""

    def __init__(self) -> None:
        self._settled = False
        self.called = asyncio.Event()

    @property
    def possible(self) -> bool:
        return not self._settled and not self.called.is_set()

    def call(self) -> None:
        if self.possible:
            self.called.set()

    def settle(self) -> bool:
        """The drain is over: whether it was taken back. From now on it is too late for that."""
        self._settled = True
        return self.called.is_set()


@dataclass(frozen=True, slots=True, kw_only=True)
class Took:
    """How long a stop took: until no request was waited for any longer, and from then on."""

    drain_seconds: float
    stop_seconds: float


class Stopper:
    """Stops backends of this agent, and what earlier ones left."""

    def __init__(self, backends: Backends, traffic: Traffic, hurry: Hurry) -> None:
        self._backends = backends
        self._traffic = traffic
        self._hurry = hurry

    async def stop(
        self, nonce: Nonce, timeouts: Timeouts, *, drain: bool, recall: Recall | None = None
    ) -> Took | None:
        """Let the backend's requests end, then climb the ladder. Raises Transient: survivors.

        None: it was taken back, and no signal was sent.
        """
        clock = asyncio.get_running_loop().time
        began = clock()
        if drain:
            await self.drain(nonce, timeouts.drain, recall)
        if recall is not None and recall.settle():
            return None
        drained = clock()
        await self._backends.stop(  # nothing is awaited between that and the begin of the ladder
            nonce,
            stop_seconds=timeouts.stop,
            kill_seconds=timeouts.kill,
            hurry=self._hurry.killing,
        )
        return Took(drain_seconds=drained - began, stop_seconds=clock() - drained)

    async def drain(self, nonce: Nonce, seconds: float, recall: Recall | None = None) -> None:
        """Let the backend's requests end, for so long and while nobody is in a hurry, nor takes it
        back."""
        idle = asyncio.ensure_future(self._traffic.wait_idle(nonce))
        waits = {idle, asyncio.ensure_future(self._hurry.hurried.wait())}
        if recall is not None:
            waits.add(asyncio.ensure_future(recall.called.wait()))
        try:
            done, _ = await asyncio.wait(
                waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for task in waits:
                task.cancel()
            await asyncio.gather(*waits, return_exceptions=True)
        if idle not in done and (recall is None or recall.possible):
            left = self._traffic.in_flight(nonce)
            _log.warning("requests in flight are not waited for any longer", in_flight=left)
