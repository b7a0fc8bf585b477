"""A client that asks once, on a connection of its own, and need not stay to the end."""

import asyncio
import re
from typing import cast

from tests.bench import wire
from tests.bench.load import WrongAnswer

_FINAL_CHUNK = b"0\r\n\r\n"
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)")


class Visitor(asyncio.Protocol):
    """`received`: every byte that came, at most a few hundred."""

    def __init__(self, request: bytes) -> None:
        self.received = bytearray()
        self._request = request
        self._event: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        self.received += data
        if not self._event.done() and wire.EVENT in self.received:
            self._event.set_result(None)
        if self.is_whole:
            self._settle()

    def connection_lost(self, exc: Exception | None) -> None:
        self._settle()

    def _settle(self) -> None:
        """There comes no event any more."""
        self._over.set()
        if not self._event.done():
            self._event.set_exception(WrongAnswer(f"{bytes(self.received[:200])!r}"))
            self._event.exception()  # nobody need be there

    async def first_event(self) -> None:
        """Raises WrongAnswer when the answer, or the connection, ends without one."""
        await self._event

    async def over(self) -> None:
        """Return when the answer is whole, or the connection closed."""
        await self._over.wait()

    @property
    def status(self) -> int | None:
        """None: not a byte came."""
        return int(self.received.split(b" ", 2)[1]) if self.received else None

    @property
    def is_whole(self) -> bool:
        """Whether the answer has the end that HTTP wants."""
        head, _, body = bytes(self.received).lower().partition(b"\r\n\r\n")
        if b"chunked" in head:
            return self.received.endswith(_FINAL_CHUNK)
        length = _LENGTH.search(head)
        return length is not None and len(body) == int(length[1])

    def leave(self) -> None:
        self._transport.abort()


async def visit(port: int, request: bytes) -> Visitor:
    loop = asyncio.get_running_loop()
    _, visitor = await loop.create_connection(lambda: Visitor(request), "127.0.0.1", port)
    return visitor
