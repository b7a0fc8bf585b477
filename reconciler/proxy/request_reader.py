"""The bytes of a connection, read as requests: heads, pieces of bodies, ends."""

from dataclasses import dataclass
from typing import Protocol

import httptools

from reconciler.proxy import errors
from reconciler.proxy.errors import Header, Problem


@dataclass(frozen=True, slots=True, kw_only=True)
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
        self._head_bytes = 0
        self._offered = False
        self._loose_bytes = 0
        self.headers: list[Header] = []
        self.in_head = False

    def feed(self, data: bytes) -> Problem | None:
        """Tell the receiver what has come; or say why the rest cannot be read, for good."""
        self._loose_bytes += len(data)
        rest = memoryview(data)
        while rest:
            try:
                self._parser.feed_data(rest)
                rest = rest[:0]
            except httptools.HttpParserUpgrade as offer:
                self._pass_over_offer()
                rest = rest[offer.args[0] :]
            except httptools.HttpParserCallbackError as exc:
                if isinstance(exc.__context__, _Refused):
                    return exc.__context__.problem
                raise
            except httptools.HttpParserError as exc:
                return errors.bad_request(str(exc))
        return self._too_large() if self._loose_bytes > self._limit_bytes else None

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
        self._head_bytes = 0

    def on_url(self, part: bytes) -> None:
        self._target += part
        self._head_bytes += len(part)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.in_head:  # else it is in the trailer of a body, where nobody expects headers
            self.headers.append((name.lower(), value))
            self._head_bytes += len(name) + len(value) + 4

    def on_headers_complete(self) -> None:
        self._loose_bytes = 0
        if self._head_bytes > self._limit_bytes:
            raise _Refused(self._too_large())
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
            expects_continue=any(
                name == b"expect" and value.lower() == b"100-continue"
                for name, value in self.headers
            ),
        )
