"""`max_in_flight`: who may ask a model's backend now, and who waits for a turn."""

import asyncio
from collections import deque
from dataclasses import dataclass, field

from reconciler.errors import Transient
from reconciler.plan.ids import ModelName


class QueueFull(Transient):
    """As many wait for this model as may."""


class WaitedTooLong(Transient):
    """No turn came in time."""


@dataclass(slots=True, kw_only=True)
class _Queue:
    """Of one model. `limit`: the newest one known; None: no limit."""

    limit: int | None = None
    running: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)

    @property
    def open(self) -> bool:
        return self.limit is None or self.running < self.limit

    def admit(self) -> None:
        """Let in whom there is room for: first come, first served."""
        while self.waiting and self.open:
            turn = self.waiting.popleft()
            if not turn.done():  # else it was cancelled just now
                self.running += 1
                turn.set_result(None)


class Turns:
    """One queue a model. For one event loop.

    `queue_length`: how many may wait for one model; `wait_seconds`: for how long.
    """

    def __init__(self, *, queue_length: int, wait_seconds: float) -> None:
        self.queue_length = queue_length
        self.wait_seconds = wait_seconds
        self._queues: dict[ModelName, _Queue] = {}

    def waiting(self, model: ModelName) -> int:
        queue = self._queues.get(model)
        return len(queue.waiting) if queue else 0

    def turn(self, model: ModelName, limit: int | None) -> "Turn":
        """`async with` it: a turn at the model, once there is one; True where that took a wait.
        Raises QueueFull or WaitedTooLong.

        Who is cancelled leaves the queue. A new limit holds from the next request on, or the end
        of one.
        """
        return Turn(self, model, limit)

    async def begin(self, model: ModelName, limit: int | None) -> bool:
        queue = self._queues.get(model)
        if queue is None:
            queue = self._queues[model] = _Queue()
        queue.limit = limit
        queue.admit()
        if queue.open:
            queue.running += 1
            return False
        await self._wait(model, queue)
        return True

    def end(self, model: ModelName) -> None:
        self._end(model, self._queues[model])

    async def _wait(self, model: ModelName, queue: _Queue) -> None:
        if len(queue.waiting) >= self.queue_length:
            raise QueueFull(f"{self.queue_length} requests wait for model {model} already")
        turn = asyncio.get_running_loop().create_future()
        queue.waiting.append(turn)
        try:
            async with asyncio.timeout(self.wait_seconds):
                await turn
        except (TimeoutError, asyncio.CancelledError) as exc:
            if turn.done() and not turn.cancelled():  # it came at the same moment
                self._end(model, queue)
            elif turn in queue.waiting:
                queue.waiting.remove(turn)
            if isinstance(exc, TimeoutError):
                raise WaitedTooLong(f"no turn within {self.wait_seconds:g} s") from exc
            raise

    def _end(self, model: ModelName, queue: _Queue) -> None:
        queue.running -= 1
        queue.admit()
        if not queue.running:
            del self._queues[model]


class Turn:
    """A class of its own, because @asynccontextmanager takes some times as long."""

    __slots__ = ("_limit", "_model", "_turns")

    def __init__(self, turns: Turns, model: ModelName, limit: int | None) -> None:
        self._turns = turns
        self._model = model
        self._limit = limit

    async def __aenter__(self) -> bool:
        return await self._turns.begin(self._model, self._limit)

    async def __aexit__(self, *_: object) -> None:
        self._turns.end(self._model)
