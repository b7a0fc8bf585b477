"""Comments in an event stream while its engine says nothing.

litellm#34819, #34374: no byte came during a long prefill, and load balancers cut it at 60 s.
"""

import asyncio
from collections.abc import Callable
from types import TracebackType

from starlette.types import Message, Send

from reconciler.proxy import headers

_PING: Message = {"type": "http.response.body", "body": b": ping\n\n", "more_body": True}
_BETWEEN_EVENTS = (b"\n\n", b"\r\n\r\n")
_TAIL_BYTES = 4


class Heartbeat:
    """The way of one answer to its client: `async with` it, and send through it.

    After `seconds` without a byte a comment goes out, between two events of a stream. Before
    anything came `may_begin` is asked, and `head` goes first; `begun` says that it has.
    """

    def __init__(
        self,
        send: Send,
        *,
        seconds: float,
        may_begin: Callable[[], bool],
        head: Callable[[], Message],
    ) -> None:
        self.begun = False
        self._send = send
        self._seconds = seconds
        self._may_begin = may_begin
        self._head = head
        self._loop = asyncio.get_running_loop()
        self._is_stream: bool | None = None
        """None: nothing came yet."""
        self._tail = b"\n\n"
        self._sending = False
        self._ping: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Heartbeat":
        self._last = self._loop.time()
        self._timer = self._loop.call_later(self._seconds, self._due)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        if self._ping is not None:
            self._ping.cancel()
            await asyncio.gather(self._ping, return_exceptions=True)

    async def stop_beginning(self) -> bool:
        """The engine has answered, or failed: no head goes out any more. Whether one has."""
        if self._is_stream is None:
            self._is_stream = False
        if self._ping is not None:
            await self._ping
        return self.begun

    async def send(self, message: Message) -> None:
        if self._ping is not None:
            await self._ping
        self._sending = True
        await self._send(message)
        self._sending = False
        self._last = self._loop.time()
        if message["type"] == "http.response.start":
            self._is_stream = _is_endless_stream(message)
        elif body := message.get("body"):
            whole = body if len(body) >= _TAIL_BYTES else self._tail + body
            self._tail = whole[-_TAIL_BYTES:]

    def _due(self) -> None:
        missing = self._last + self._seconds - self._loop.time()
        if missing <= 0 and self._ping is None and not self._sending:
            if self._is_stream is None and self._may_begin():
                self.begun = self._is_stream = True
                self._beat(self._head(), _PING)
            elif self._is_stream and self._tail.endswith(_BETWEEN_EVENTS):
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


def _is_endless_stream(message: Message) -> bool:
    """An answer of known length has no room for more."""
    given = message["headers"]
    return headers.is_event_stream(given) and headers.first(given, b"content-length") is None
