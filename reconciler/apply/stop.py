"""Stopping one backend: its requests end first, unless somebody is in a hurry (R10)."""

import asyncio
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


class Stopper:
    """Stops backends of this agent, and what earlier ones left."""

    def __init__(self, backends: Backends, traffic: Traffic, hurry: Hurry) -> None:
        self._backends = backends
        self._traffic = traffic
        self._hurry = hurry

    async def stop(self, nonce: Nonce, timeouts: Timeouts, *, drain: bool) -> None:
        """Let the backend's requests end, then climb the ladder. Raises Transient: survivors."""
        if drain:
            await self.drain(nonce, timeouts.drain)
        await self._backends.stop(
            nonce,
            stop_seconds=timeouts.stop,
            kill_seconds=timeouts.kill,
            hurry=self._hurry.killing,
        )

    async def drain(self, nonce: Nonce, seconds: float) -> None:
        """Let the backend's requests end, for so long and while nobody is in a hurry."""
        idle = asyncio.ensure_future(self._traffic.wait_idle(nonce))
        hurried = asyncio.ensure_future(self._hurry.hurried.wait())
        try:
            done, _ = await asyncio.wait(
                {idle, hurried}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for task in (idle, hurried):
                task.cancel()
            await asyncio.gather(idle, hurried, return_exceptions=True)
        if idle not in done:
            left = self._traffic.in_flight(nonce)
            _log.warning("requests in flight are not waited for any longer", in_flight=left)
