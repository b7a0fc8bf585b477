"""The backend of the proxy benchmark: constant answers, as cheap as Python can give them.

`python -m tests.bench.upstream PORT` speaks enough of llama-server for an agent to start it.
GET /counts tells what it answered: `requests` and `events`, and how many are `running` now.
GET /watch tells, line by line after a first one, when a request with a `wire.Tag` arrives and ends.
GET /drop ends the connections of all that are running.
"""

import asyncio
import json
import re
import signal
import sys
import time
from dataclasses import asdict, dataclass, field
from typing import cast

import uvloop

from tests.bench import wire
from tests.bench.wire import Manner, Tag

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_DYING_SECONDS = 0.05
"""After its event: the event has reached the client by then."""


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
    running: int = 0


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


@dataclass(slots=True)
class _Service:
    """What all connections share. `open`: requests with a tag that are not at their end."""

    counts: _Counts = field(default_factory=_Counts)
    open: dict[asyncio.Transport, Tag] = field(default_factory=dict)
    watchers: set[asyncio.Transport] = field(default_factory=set)

    def begin(self, transport: asyncio.Transport, tag: Tag) -> None:
        self.open[transport] = tag
        self.counts.running += 1
        self._tell("arrived", tag)

    def end(self, transport: asyncio.Transport) -> None:
        self.watchers.discard(transport)
        if tag := self.open.pop(transport, None):
            self.counts.running -= 1
            self._tell("ended", tag)

    def _tell(self, what: str, tag: Tag) -> None:
        line = f"{what} {tag} {time.monotonic()}\n".encode()
        for watcher in self.watchers:
            watcher.write(line)


class _Connection(asyncio.Protocol):
    def __init__(self, service: _Service, steps: _Steps) -> None:
        self._service = service
        self._steps = steps
        self._read = bytearray()
        self._size = 0
        """Of the request that is arriving, once its head is here."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class

    def data_received(self, data: bytes) -> None:
        self._read += data
        while self._size or (end := self._read.find(b"\r\n\r\n")) >= 0:
            if not self._size:
                self._head = end + 4
                length = _LENGTH.search(self._read, 0, end)
                self._size = self._head + (int(length[1]) if length else 0)
            if len(self._read) < self._size:
                return
            request = bytes(self._read[: self._size])
            del self._read[: self._size]
            self._size = 0
            self._answer(request, request[self._head :])

    def connection_lost(self, exc: Exception | None) -> None:
        self._steps.drop(self._transport)
        self._service.end(self._transport)

    def _answer(self, request: bytes, body: bytes) -> None:
        if request.startswith(b"GET"):
            self._page(request.split(b" ", 2)[1])
            return
        self._service.counts.requests += 1
        if tag := wire.tag_of(body):
            self._misbehave(tag)
        elif (events := wire.events_wanted(body)) is None:
            self._transport.write(_ANSWER)
        else:
            self._transport.write(_STREAM_HEAD)
            self._steps.add(self._transport, events)

    def _page(self, path: bytes) -> None:
        if path == b"/watch":
            self._service.watchers.add(self._transport)
            self._transport.write(wire.WATCHING)
            return
        if path == b"/drop":
            for transport in list(self._service.open):
                transport.abort()
        counts = json.dumps(asdict(self._service.counts)).encode()
        self._transport.write(_PAGES.get(path) or _whole(counts))

    def _misbehave(self, tag: Tag) -> None:
        self._service.begin(self._transport, tag)
        if tag.manner is Manner.REFUSED:
            self._transport.abort()
        elif tag.manner is not Manner.SILENT:
            self._transport.write(_STREAM_HEAD + _EVENT)
            if tag.manner is Manner.DYING:
                loop = asyncio.get_running_loop()
                loop.call_later(_DYING_SECONDS, self._transport.abort)


async def _serve(port: int) -> None:
    service = _Service()
    steps = _Steps(service.counts)
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    await loop.create_server(lambda: _Connection(service, steps), "127.0.0.1", port, backlog=4096)
    await stop.wait()


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
