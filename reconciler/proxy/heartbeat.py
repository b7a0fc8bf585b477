"""Comments in an event stream while its engine says nothing.

litellm#34819, #34374: no byte came during a long prefill, and load balancers cut it at 60 s.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType

from starlette.types import Message, Send

_PING: Message = {"type": "http.response.body", "body": b": ping\n\n", "more_body": True}
_BETWEEN_EVENTS = (b"\n\n", b"\r\n\r\n")
_TAIL_BYTES = 4


class Heartbeat:
    """The way of one answer to its client: `async with` it, and send through it.

    After `seconds` without a byte a comment goes out, between two events of a stream. Before
    anything came `may_begin` is asked (None: never), and `head` goes first; `begun` says that it
    has. An answer that is no stream has no timer. `sending`: a piece of the answer is on its way,
    so that another look finds it so only while the client does not read.
    """

    __slots__ = (
        "_head",
        "_is_stream",
        "_last",
        "_loop",
        "_may_begin",
        "_ping",
        "_seconds",
        "_send",
        "_tail",
        "_timer",
        "begun",
        "sending",
    )

    def __init__(
        self,
        send: Send,
        *,
        seconds: float,
        may_begin: Callable[[], bool] | None,
        head: Callable[[], Message],
    ) -> None:
        self.begun = False
        self._send = send
        self._seconds = seconds
        self._may_begin = may_begin
        self._head = head
        self._loop = asyncio.get_running_loop()
        self._is_stream = False
        self._tail = b"\n\n"
        self.sending = False
        self._ping: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._last = 0.0

    async def __aenter__(self) -> "Heartbeat":
        if self._may_begin is not None:
            self._last = self._loop.time()
            self._start_timer()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._ping is not None:
            self._ping.cancel()
            await asyncio.gather(self._ping, return_exceptions=True)

    @property
    def between_events(self) -> bool:
        return self._tail.endswith(_BETWEEN_EVENTS)

    async def stop_beginning(self) -> bool:
        """The engine has answered, or failed: no head goes out any more. Whether one has."""
        self._may_begin = None
        if self._ping is not None:
            await self._ping
        return self.begun

    async def send_head(self, message: Message, *, endless: bool) -> None:
        """Of the engine's answer. `endless`: an event stream that has room for more."""
        self.sending = True
        await self._send(message)
        self.sending = False
        if endless:
            self._is_stream = True
            self._last = self._loop.time()
            if self._timer is None:
                self._start_timer()

    async def send(self, data: bytes) -> None:
        """The next piece of the answer, not the last one."""
        self.sending = True
        if self._ping is not None:
            await self._ping
        await self._send({"type": "http.response.body", "body": data, "more_body": True})
        self.sending = False
        self._last = self._loop.time()
        self._tail = (data if len(data) >= _TAIL_BYTES else self._tail + data)[-_TAIL_BYTES:]

    async def end(self) -> None:
        self.sending = True  # to the end: nothing goes out behind the last piece
        if self._ping is not None:
            await self._ping
        await self._send({"type": "http.response.body", "body": b""})

    def _start_timer(self) -> None:
        self._timer = self._loop.call_later(self._seconds, self._due)

    def _due(self) -> None:
        missing = self._last + self._seconds - self._loop.time()
        if missing <= 0 and self._ping is None and not self.sending:
            if self._may_begin is not None and self._may_begin():
                self._may_begin = None
                self.begun = self._is_stream = True
                self._beat(self._head(), _PING)
            elif self._is_stream and self.between_events:
                self._beat(_PING)
        again = missing if missing > 0 else self._seconds
        self._timer = self._loop.call_later(again, self._due)

    def _beat(self, *messages: Message) -> None:
        async def beat() -> None:
            for message in messages:
                await self._send(message)
            self._last = self._loop.time()
            self._ping = None

        self._ping = asyncio.create_task(beat(), name="heartbeat")
