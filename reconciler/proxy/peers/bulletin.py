"""What this node tells other agents of itself: at once when it is new, else its figures.

However many ask, a state of the node is encoded once, and at most one a second is told: a status
that changes many times a second costs each of them one body, and the first change comes at once. So
does that the node drains.
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Protocol

from reconciler.proxy import json_text, view
from reconciler.proxy.as_of import Beats, moment
from reconciler.proxy.inflight import Traffic
from reconciler.proxy.local_loads import LocalLoads
from reconciler.proxy.peers.load import IDLE
from reconciler.proxy.peers.shown import figures
from reconciler.status import Json, Status

MOST_WAIT_SECONDS = 60.0
_PAUSE_SECONDS = 1.0
_FIGURES_SECONDS = 0.1
_MOST_WAITING = 2000
"""Who comes past that is answered at once: anybody who reaches the port may ask."""


class Following(Protocol):
    """The published status, and the next one; see `Board`."""

    def current(self) -> Status: ...
    async def newer_than(self, version: int) -> Status: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What who asks knows already. `silent`: that the loop is. `wait_seconds`: for more."""

    version: int
    agent_id: str
    silent: bool = False
    wait_seconds: float = 0.0


class Bulletin:
    """`ending`: set when the agent ends, so that nobody waits for it."""

    def __init__(
        self,
        board: Following,
        load: LocalLoads,
        traffic: Traffic,
        pulse: Beats,
        *,
        agent_id: str,
        ending: asyncio.Event,
        pause_seconds: float = _PAUSE_SECONDS,
    ) -> None:
        self._board = board
        self._load = load
        self._traffic = traffic
        self._pulse = pulse
        self._agent_id = agent_id
        self._ending = ending
        self._pause_seconds = pause_seconds
        self._waiting = 0
        self._body = b""
        self._told = (-1, False)
        self._small = b""
        self._small_is = (-1, False)
        self._small_at = float("-inf")
        self._told_at = float("-inf")
        self._told_draining = False

    async def answer(self, known: Known) -> bytes:
        """The whole server object where it is not the one that is known; else what little is new,
        once something is or the time is over."""
        self._waiting += 1
        try:
            return await self._answer(known)
        finally:
            self._waiting -= 1

    async def _answer(self, known: Known) -> bytes:
        if known.agent_id != self._agent_id:
            return self._whole()
        seen = (known.version, known.silent)
        loop = asyncio.get_running_loop()
        end = loop.time() + (known.wait_seconds if self._waiting <= _MOST_WAITING else 0.0)
        while self._now() == seen and (left := end - loop.time()) > 0:
            await self._first(self._board.newer_than(known.version), left)
            if self._ending.is_set():
                break
        if self._now() == seen:
            return self._unchanged()
        await self._turn(seen)
        return self._whole()

    async def _turn(self, seen: tuple[int, bool]) -> None:
        """Until something else may be told than was told last."""
        loop = asyncio.get_running_loop()
        while self._told == seen and not self._may_tell(loop.time()):
            left = self._told_at + self._pause_seconds - loop.time()
            await self._first(self._board.newer_than(self._board.current().version), left)
            if self._ending.is_set():
                return

    def _may_tell(self, now: float) -> bool:
        """Whether what is as of now may be told."""
        if now - self._told_at >= self._pause_seconds:
            return True
        return self._board.current().draining and not self._told_draining

    async def _first(self, awaited: Awaitable[object], seconds: float) -> None:
        """Until it is there, the time is over, or the agent ends."""
        tasks = (
            asyncio.ensure_future(awaited),
            asyncio.create_task(self._ending.wait(), name="bulletin:ending"),
        )
        try:
            await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _now(self) -> tuple[int, bool]:
        return self._board.current().version, self._pulse.beat().silent_since is not None

    def _whole(self) -> bytes:
        """As of at most a pause ago."""
        now = asyncio.get_running_loop().time()
        if self._may_tell(now):
            status = self._board.current()
            self._told, self._told_at, self._told_draining = self._now(), now, status.draining
            self._body = json_text.encode(self.server(status))
        return self._body

    def server(self, status: Status) -> Json:
        """This node's server object as of now."""
        shown = view.server(status, self._traffic, self._pulse.beat())
        models = {model.name: model for model in status.models}
        for key in ("models", "loaded_models"):
            entries = shown[key]
            assert isinstance(entries, list)
            for entry in entries:
                model = models[entry["name"]]
                entry["load"] = figures(self._load.figures(model.name))
        return {**shown, "agent_id": self._agent_id}

    def _unchanged(self) -> bytes:
        """The same one to all who come within a moment."""
        now = asyncio.get_running_loop().time()
        if self._small_is != self._now() or now - self._small_at >= _FIGURES_SECONDS:
            self._small, self._small_is, self._small_at = self._figures(), self._now(), now
        return self._small

    def _figures(self) -> bytes:
        status = self._board.current()
        loads = {model.name: self._load.figures(model.name) for model in status.models}
        return json_text.encode(
            {
                "api": 1,
                "unchanged": True,
                "version": status.version,
                "agent_id": self._agent_id,
                "load": {name: figures(load) for name, load in loads.items() if load != IDLE},
                **moment(self._pulse.beat()),
            }
        )
