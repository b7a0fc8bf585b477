"""What the upstream tells of itself: counts, and the requests with a tag as they come and end."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import cast

import httpx

from tests.bench import wire
from tests.bench.wire import Tag


def counts(port: int) -> dict[str, int]:
    return _ask(port, "counts")


def drop(port: int) -> None:
    """End all that has a tag."""
    _ask(port, "drop")


def _ask(port: int, page: str) -> dict[str, int]:
    answer = httpx.get(f"http://127.0.0.1:{port}/{page}", trust_env=False, timeout=30)
    return cast(dict[str, int], answer.json())


class Watch:
    """Tells when a tag's request arrived, how often, and when it ended (CLOCK_MONOTONIC)."""

    def __init__(self) -> None:
        self._arrivals: dict[str, int] = defaultdict(int)
        self._arrived: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._ended: dict[str, asyncio.Future[float]] = defaultdict(
            asyncio.get_running_loop().create_future
        )

    def take(self, line: str) -> None:
        what, tag, moment = line.split()
        if what == "arrived":
            self._arrivals[tag] += 1
            self._arrived[tag].set()
        elif not self._ended[tag].done():
            self._ended[tag].set_result(float(moment))

    async def arrived(self, tag: Tag) -> None:
        await self._arrived[str(tag)].wait()

    async def ended(self, tag: Tag) -> float:
        return await self._ended[str(tag)]

    def arrivals(self, tag: Tag) -> int:
        return self._arrivals[str(tag)]


@asynccontextmanager
async def watching(port: int) -> AsyncIterator[Watch]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    watch = Watch()

    async def read() -> None:
        async for line in reader:
            watch.take(line.decode())

    writer.write(b"GET /watch HTTP/1.1\r\nHost: bench\r\n\r\n")
    await reader.readuntil(wire.WATCHING)
    reading = asyncio.create_task(read(), name="watch")
    try:
        yield watch
    finally:
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading
        writer.close()
        await writer.wait_closed()
