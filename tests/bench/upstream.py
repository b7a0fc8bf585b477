"""The backend of the proxy benchmark: constant answers, as cheap as Python can give them.

`python -m tests.bench.upstream PORT` speaks enough of llama-server for an agent to start it.
GET /counts tells what it answered: `requests` and `events`, the probes of an agent included.
"""

import asyncio
import json
import re
import signal
import sys
from dataclasses import asdict, dataclass
from typing import cast

import uvloop

from tests.bench import wire

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


def _whole(body: bytes) -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


_ANSWER = _whole(wire.JSON_ANSWER)
_PAGES = {
    b"/health": _whole(b'{"status":"ok"}'),
    b"/v1/models": _whole(b'{"object":"list","data":[{"id":"bench","object":"model"}]}'),
}
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
_EVENT = _chunk(wire.EVENT)
_STREAM_END = _chunk(wire.LAST_EVENT) + b"0\r\n\r\n"


@dataclass(slots=True)
class _Counts:
    requests: int = 0
    events: int = 0


class _Steps:
    """Gives every stream its next event at one moment, and the next one an interval later."""

    def __init__(self, counts: _Counts) -> None:
        self._counts = counts
        self._left: dict[asyncio.Transport, int] = {}

    def add(self, stream: asyncio.Transport, events: int) -> None:
        if not self._left:
            asyncio.get_running_loop().call_later(wire.INTERVAL_SECONDS, self._step)
        self._left[stream] = events

    def drop(self, stream: asyncio.Transport) -> None:
        self._left.pop(stream, None)

    def _step(self) -> None:
        began = asyncio.get_running_loop().time()
        for stream, left in list(self._left.items()):
            if left:
                stream.write(_EVENT)
                self._counts.events += 1
                self._left[stream] = left - 1
            else:
                stream.write(_STREAM_END)
                del self._left[stream]
        if self._left:
            asyncio.get_running_loop().call_at(began + wire.INTERVAL_SECONDS, self._step)


class _Connection(asyncio.Protocol):
    def __init__(self, counts: _Counts, steps: _Steps) -> None:
        self._counts = counts
        self._steps = steps
        self._read = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class

    def data_received(self, data: bytes) -> None:
        self._read += data
        while (end := self._read.find(b"\r\n\r\n")) >= 0:
            length = _LENGTH.search(self._read, 0, end)
            size = end + 4 + (int(length[1]) if length else 0)
            if len(self._read) < size:
                return
            request, self._read = self._read[:size], self._read[size:]
            self._answer(request, request[end + 4 :])

    def connection_lost(self, exc: Exception | None) -> None:
        self._steps.drop(self._transport)

    def _answer(self, request: bytes, body: bytes) -> None:
        if request.startswith(b"GET"):
            path = request.split(b" ", 2)[1]
            counts = json.dumps(asdict(self._counts)).encode()
            self._transport.write(_PAGES.get(path) or _whole(counts))
            return
        self._counts.requests += 1
        events = wire.events_wanted(body)
        if events is None:
            self._transport.write(_ANSWER)
        else:
            self._transport.write(_STREAM_HEAD)
            self._steps.add(self._transport, events)


async def _serve(port: int) -> None:
    counts = _Counts()
    steps = _Steps(counts)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    await loop.create_server(lambda: _Connection(counts, steps), "127.0.0.1", port, backlog=1024)
    await stop.wait()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
