"""`max_in_flight`: who may ask a model's backend now, and who waits for a turn."""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from reconciler.errors import Transient
from reconciler.plan.ids import ModelName

_LOOK_SECONDS = 0.1
"""Who waits first in a queue looks so often whether it had better go elsewhere."""

Look = Callable[[], object]
"""What whoever waits had better do instead, from here and now on; None: nothing, wait on."""


class QueueFull(Transient):
    """As many wait for this model as may."""


class WaitedTooLong(Transient):
    """No turn came in time."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Waiter:
    """`news`: set when it is to look around; `admitted`: it has its turn."""

    news: asyncio.Future[None]
    look: Look | None
    admitted: bool = False

    def wake(self) -> None:
        if not self.news.done():
            self.news.set_result(None)


@dataclass(slots=True, kw_only=True)
class _Queue:
    """Of one model. `limit`: the newest one known; None: no limit."""

    limit: int | None = None
    running: int = 0
    waiting: deque[_Waiter] = field(default_factory=deque)
    watchers: list[asyncio.Future[None]] = field(default_factory=list)
    """They want to know when there is room that nobody here waits for."""

    @property
    def open(self) -> bool:
        return self.limit is None or self.running < self.limit

    def admit(self) -> None:
        """Let in whom there is room for: first come, first served."""
        while self.waiting and self.open:
            waiter = self.waiting.popleft()
            if not waiter.news.cancelled():  # else it leaves just now
                self.running += 1
                waiter.admitted = True
                waiter.wake()
        self.wake_first()
        if self.open and not self.waiting:
            self.tell()

    def tell(self) -> None:
        for watcher in self.watchers:
            if not watcher.done():
                watcher.set_result(None)

    def leave(self, waiter: _Waiter) -> None:
        self.waiting.remove(waiter)
        self.wake_first()

    def wake_first(self) -> None:
        if self.waiting and self.waiting[0].look is not None:
            self.waiting[0].wake()


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

    def has_room(self, model: ModelName) -> bool:
        """For one more, who would have to wait for nobody."""
        queue = self._queues.get(model)
        return queue is None or (queue.open and not queue.waiting)

    async def until_room(self, model: ModelName) -> None:
        while not self.has_room(model):
            queue = self._queues[model]
            told = asyncio.get_running_loop().create_future()
            queue.watchers.append(told)
            try:
                await told
            finally:
                queue.watchers.remove(told)

    def turn(
        self,
        model: ModelName,
        limit: int | None,
        look: Look | None = None,
        *,
        wait_seconds: float | None = None,
    ) -> "Turn":
        """`async with` it: a turn at the model, once there is one. Raises QueueFull or
        WaitedTooLong.

        Who waits first of all does what `look` finds, and leaves the queue without a turn. Who is
        cancelled leaves it, too. A new limit holds from the next request on, or the end of one.
        `limit` 0: there is no turn to be had here, but something to be found. `wait_seconds`: None:
        as for all.
        """
        seconds = self.wait_seconds if wait_seconds is None else wait_seconds
        return Turn(self, model, limit, look, seconds)

    def look_around(self, model: ModelName) -> None:
        """Something has changed elsewhere: whoever waits first looks at it."""
        queue = self._queues.get(model)
        if queue is not None:
            queue.wake_first()

    async def begin(self, turn: "Turn") -> None:
        queue = self._queues.get(turn.model)
        if queue is None:
            queue = self._queues[turn.model] = _Queue()
        queue.limit = turn.limit
        if queue.waiting:
            queue.admit()
        if queue.open:
            queue.running += 1
        else:
            turn.waited = True
            began = asyncio.get_running_loop().time()
            try:
                await self._wait(turn, queue)
            finally:
                turn.waited_seconds = asyncio.get_running_loop().time() - began

    def end(self, model: ModelName) -> None:
        self._end(model, self._queues[model])

    async def _wait(self, turn: "Turn", queue: _Queue) -> None:
        if len(queue.waiting) >= self.queue_length:
            self._forget_idle(turn.model, queue)
            raise QueueFull(f"{self.queue_length} requests wait for model {turn.model} already")
        news = asyncio.get_running_loop().create_future()
        waiter = _Waiter(news=news, look=turn.look)
        queue.waiting.append(waiter)
        try:
            async with asyncio.timeout(turn.wait_seconds):
                while not waiter.admitted and turn.found is None:
                    await _news(waiter, first=queue.waiting[0] is waiter)
                    if not waiter.admitted and waiter.look and queue.waiting[0] is waiter:
                        turn.found = waiter.look()
        except (TimeoutError, asyncio.CancelledError) as exc:
            if waiter.admitted:  # it came at the same moment
                self._end(turn.model, queue)
            elif waiter in queue.waiting:
                self._leave(turn.model, queue, waiter)
            if isinstance(exc, TimeoutError):
                raise WaitedTooLong(f"no turn within {turn.wait_seconds:g} s") from exc
            raise
        if turn.found is not None:
            self._leave(turn.model, queue, waiter)

    def _leave(self, model: ModelName, queue: _Queue, waiter: _Waiter) -> None:
        queue.leave(waiter)
        self._forget_idle(model, queue)

    def _end(self, model: ModelName, queue: _Queue) -> None:
        queue.running -= 1
        if queue.waiting or queue.watchers:
            queue.admit()
        if not queue.running and not queue.waiting:
            del self._queues[model]
            if queue.watchers:
                queue.tell()

    def _forget_idle(self, model: ModelName, queue: _Queue) -> None:
        if not queue.running and not queue.waiting:
            del self._queues[model]
            queue.tell()


async def _news(waiter: _Waiter, *, first: bool) -> None:
    loop, timer = asyncio.get_running_loop(), None
    if first and waiter.look is not None:
        timer = loop.call_later(_LOOK_SECONDS, waiter.wake)
    try:
        await waiter.news
    finally:
        if timer is not None:
            timer.cancel()
    if not waiter.admitted:
        waiter.news = loop.create_future()


class Turn:
    """A class of its own, because @asynccontextmanager takes some times as long.

    `waited`: it took a wait, of `waited_seconds`. `found`: what `look` has found; then this is no
    turn.
    """

    __slots__ = (
        "_turns",
        "found",
        "limit",
        "look",
        "model",
        "wait_seconds",
        "waited",
        "waited_seconds",
    )

    def __init__(
        self,
        turns: Turns,
        model: ModelName,
        limit: int | None,
        look: Look | None,
        wait_seconds: float,
    ) -> None:
        self._turns = turns
        self.model = model
        self.limit = limit
        self.look = look
        self.wait_seconds = wait_seconds
        self.waited = False
        self.waited_seconds = 0.0
        self.found: object = None

    async def __aenter__(self) -> "Turn":
        await self._turns.begin(self)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self.found is None:
            self._turns.end(self.model)
