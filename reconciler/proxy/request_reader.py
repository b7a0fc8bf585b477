"""The bytes of a connection, read as requests: heads, pieces of bodies, ends."""

from dataclasses import dataclass
from typing import Protocol

import httptools

from reconciler.proxy import errors
from reconciler.proxy.errors import Header, Problem


@dataclass(slots=True, kw_only=True)  # not frozen: that costs a microsecond a request
class Head:
    """`path`: as it was sent, percent-encoded. `version`: "1.1". `last`: none follows it."""

    method: str
    path: bytes
    query: bytes
    version: str
    headers: list[Header]
    last: bool
    expects_continue: bool


class Receiver(Protocol):
    """Is called for each request, in this order; `body_piece` as often as needed."""

    def head_ends(self, head: Head) -> None: ...

    def body_piece(self, piece: bytes) -> None: ...

    def request_ends(self) -> None: ...


class _Refused(Exception):
    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


class RequestReader:
    """`limit_bytes`: the largest head, and the most that may come without being part of anything.

    `headers`: those of the newest request, as far as they are read.
    """

    def __init__(self, receiver: Receiver, *, limit_bytes: int) -> None:
        self._receiver = receiver
        self._limit_bytes = limit_bytes
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._expects_continue = False
        self._offered = False
        self._loose_bytes = 0
        self.headers: list[Header] = []
        self.in_head = False

    def feed(self, data: bytes) -> Problem | None:
        """Tell the receiver what has come; or say why the rest cannot be read, for good."""
        self._loose_bytes += len(data)
        rest: bytes | memoryview | None = data
        try:
            while rest is not None:
                rest = self._read(rest)
        except httptools.HttpParserCallbackError as exc:
            if isinstance(exc.__context__, _Refused):
                return exc.__context__.problem
            raise
        except httptools.HttpParserError as exc:
            return errors.bad_request(str(exc))
        return self._too_large() if self._loose_bytes > self._limit_bytes else None

    def _read(self, data: bytes | memoryview) -> memoryview | None:
        """Returns what follows an offer of another protocol, where the parser stops."""
        try:
            self._parser.feed_data(data)
            return None
        except httptools.HttpParserUpgrade as offer:
            end = offer.args[0]
        self._pass_over_offer()
        return memoryview(data)[end:]

    def _pass_over_offer(self) -> None:
        """Read the head again, without the offer to speak another protocol.

        Java's HttpClient offers h2c with every request. The parser takes what follows such a head
        for that protocol, a body too: uvicorn with httptools waits for it for ever.
        """
        method = self._parser.get_method()
        version = self._parser.get_http_version().encode()
        headers = [b"%s: %s\r\n" % field for field in self.headers if field[0] != b"upgrade"]
        self._offered = False
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(
            b"%s %s HTTP/%s\r\n%s\r\n" % (method, self._target, version, b"".join(headers))
        )

    def _too_large(self) -> Problem:
        return errors.head_too_large(self._limit_bytes)

    # What the parser calls.

    def on_message_begin(self) -> None:
        self.in_head = True
        self.headers = []
        self._target = b""
        self._expects_continue = False

    def on_url(self, part: bytes) -> None:
        self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.in_head:  # but in the trailer of a body, where nobody expects headers
            return
        name = name.lower()
        if name == b"expect" and value.lower() == b"100-continue":
            self._expects_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._loose_bytes > self._limit_bytes and self._head_bytes() > self._limit_bytes:
            raise _Refused(self._too_large())
        self._loose_bytes = 0
        self._offered = self._parser.should_upgrade()
        if not self._offered:
            self.in_head = False
            self._receiver.head_ends(self._head())
        elif self._parser.get_method() == b"CONNECT":
            raise _Refused(errors.bad_request("CONNECT is for proxies that pass anything on"))

    def on_body(self, piece: bytes) -> None:
        self._loose_bytes = 0
        self._receiver.body_piece(piece)

    def on_message_complete(self) -> None:
        if not self._offered:
            self._loose_bytes = 0
            self._receiver.request_ends()

    def _head(self) -> Head:
        version = self._parser.get_http_version()
        try:
            target = httptools.parse_url(self._target)
        except httptools.HttpParserInvalidURLError as exc:
            raise _Refused(errors.bad_request("its target is no path")) from exc
        return Head(
            method=self._parser.get_method().decode("ascii"),
            path=target.path or b"/",
            query=target.query or b"",
            version=version,
            headers=self.headers,
            last=version != "1.1" or not self._parser.should_keep_alive(),
            expects_continue=self._expects_continue,
        )

    def _head_bytes(self) -> int:
        fields = sum(len(name) + len(value) + len(b": \r\n") for name, value in self.headers)
        return len(self._target) + fields
