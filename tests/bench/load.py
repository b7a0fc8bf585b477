"""The load generator: raw connections, one request at a time on each, every answer checked."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Protocol, cast

import httptools

from tests.bench import wire

_DEADLINE_SECONDS = 120.0
"""For one measurement; only a hang reaches it."""


class WrongAnswer(Exception):
    """A peer did not answer as the upstream does: its figures would mean nothing."""


class Measured(Protocol):
    """`fault`: how the peer misbehaved; its other figures mean nothing then."""

    fault: str | None


@contextmanager
def noting_fault(of: Measured) -> Iterator[None]:
    """A peer that misbehaves ends its own measurement only."""
    try:
        yield
    except (WrongAnswer, OSError) as exc:
        of.fault = str(exc) or type(exc).__name__


class _Job:
    """So many times the same request. `latencies`: seconds to the last byte of each answer."""

    def __init__(self, request: bytes, expected: bytes, count: int) -> None:
        self.request = request
        self.expected = expected
        self.to_send = count
        self.to_come = count
        self.latencies: list[float] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def fail(self, cause: str) -> None:
        if not self.done.done():
            self.done.set_exception(WrongAnswer(cause))

    def answered(self, seconds: float) -> None:
        self.latencies.append(seconds)
        self.to_come -= 1
        if not self.to_come and not self.done.done():
            self.done.set_result(None)


class _Connection(asyncio.Protocol):
    _job: _Job | None = None
    _sent_at = 0.0

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._body: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._job is not None:
            self._job.fail(f"the connection was closed before the answer: {exc}")

    def on_body(self, data: bytes) -> None:
        self._body.append(data)

    def on_message_complete(self) -> None:
        job, self._job = self._job, None
        assert job is not None
        seconds = time.perf_counter() - self._sent_at
        status, body = self._parser.get_status_code(), b"".join(self._body)
        if status != 200 or body != job.expected:
            job.fail(f"{status} with {body[:200]!r} ({len(body)} bytes)")
            return
        job.answered(seconds)
        self.take(job)

    def take(self, job: _Job) -> None:
        """Send the job's next request, if there is one left."""
        if not job.to_send:
            return
        job.to_send -= 1
        self._job = job
        self._body.clear()
        self._sent_at = time.perf_counter()
        self._transport.write(job.request)

    def close(self) -> None:
        self._transport.abort()


class Clients:
    """Open connections to one server."""

    def __init__(self, connections: list[_Connection]) -> None:
        self._connections = connections

    async def ask(self, request: bytes, expected: bytes, *, count: int) -> list[float]:
        """Ask `count` times in all, on every connection at once; returns the latencies.

        Raises WrongAnswer where an answer's status is not 200 or its body not `expected`.
        """
        job = _Job(request, expected, count)
        for connection in self._connections:
            connection.take(job)
        async with asyncio.timeout(_DEADLINE_SECONDS):
            await job.done
        return job.latencies


@asynccontextmanager
async def clients(port: int, connections: int) -> AsyncIterator[Clients]:
    loop = asyncio.get_running_loop()
    opened: list[_Connection] = []
    try:
        for _ in range(connections):
            _, connection = await loop.create_connection(_Connection, "127.0.0.1", port)
            opened.append(connection)
        yield Clients(opened)
    finally:
        for connection in opened:
            connection.close()


async def ask_small(asked: Clients, *, count: int) -> list[float]:
    return await asked.ask(wire.json_request(), wire.JSON_ANSWER, count=count)
