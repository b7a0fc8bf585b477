"""The bytes of a connection, read as requests: heads, pieces of bodies, ends."""

import re
from dataclasses import dataclass
from typing import Protocol

import httptools

from reconciler.proxy import errors
from reconciler.proxy.errors import Header, Problem

_LOOKED_AT = frozenset({b"host", b"transfer-encoding", b"content-length", b"expect"})
_LENGTH_DIGITS = 18
_HOST = re.compile(rb"(?:\[[\w:.%~-]+\]|[\w.~%!$&'()*+,;=-]+)(?::[0-9]*)?")


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


def _refused(cause: str) -> _Refused:
    return _Refused(errors.bad_request(cause))


class RequestReader:
    """`limit_bytes`: the largest head, and the most that may come without being part of anything.

    What somebody else might read in another way than we do is refused, whether or not RFC 9112
    leaves it to the server: somebody else may stand before us.
    """

    def __init__(self, receiver: Receiver, *, limit_bytes: int) -> None:
        self._receiver = receiver
        self._limit_bytes = limit_bytes
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._expects_continue = False
        self._offered = False
        self._loose_bytes = 0
        """What has come since the last part of anything, in pieces of their own."""
        self._piece_bytes = 0
        self._mixed_bytes = 0
        """The piece with that part: some of it may be loose, too."""
        self._has_host = False
        self._headers: list[Header] = []
        self.in_head = False

    def feed(self, data: bytes) -> Problem | None:
        """Tell the receiver what has come; or say why the rest cannot be read, for good."""
        self._piece_bytes = len(data)
        self._loose_bytes += self._piece_bytes
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

    def close(self) -> None:
        """Nothing more is fed. It lets go of the receiver: in a circle, both would stay in memory
        until the garbage collector looks at the old, after hundreds of thousands of connections.
        """
        del self._parser, self._receiver

    def refused_head(self) -> Head:
        """Of what cannot be read, as far as it was: for an answer that suits who asked."""
        return Head(
            method=self._parser.get_method().decode("ascii") if self._target else "GET",
            path=self._target.partition(b"?")[0],
            query=b"",
            version="1.1",
            headers=self._headers,
            last=True,
            expects_continue=False,
        )

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
        headers = [b"%s: %s\r\n" % field for field in self._headers if field[0] != b"upgrade"]
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
        self._headers = []
        self._target = b""
        self._has_host = False
        self._expects_continue = False

    def on_url(self, part: bytes) -> None:
        self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.in_head:  # but in the trailer of a body, where nobody expects headers
            return
        name, value = name.lower(), value.rstrip(b" \t")
        if name in _LOOKED_AT:
            self._look_at(name, value)
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        at_most = self._loose_bytes + self._mixed_bytes
        if at_most > self._limit_bytes and self._head_bytes() > self._limit_bytes:
            raise _Refused(self._too_large())
        self._nothing_loose()
        self._offered = self._parser.should_upgrade()
        if not self._offered:
            self.in_head = False
            self._receiver.head_ends(self._head())
        elif self._parser.get_method() == b"CONNECT":
            raise _refused("CONNECT is for proxies that pass anything on")

    def on_body(self, piece: bytes) -> None:
        self._nothing_loose()
        self._receiver.body_piece(piece)

    def on_message_complete(self) -> None:
        if not self._offered:
            self._nothing_loose()
            self._receiver.request_ends()

    def _nothing_loose(self) -> None:
        self._loose_bytes = 0
        self._mixed_bytes = self._piece_bytes

    def _look_at(self, name: bytes, value: bytes) -> None:
        """A header that says where the request ends, or for whom it is."""
        if name == b"host":
            if self._has_host or not _HOST.fullmatch(value):
                raise _refused("it has two Host headers, or one that is no host")
            self._has_host = True
        elif name == b"transfer-encoding":
            if value.lower() != b"chunked" or self._parser.get_http_version() != "1.1":
                raise _refused("its Transfer-Encoding is not chunked, or it is of HTTP/1.0")
        elif name == b"content-length":
            if len(value) > _LENGTH_DIGITS:
                raise _refused("its Content-Length is too long a number")
        elif value.lower() == b"100-continue":
            self._expects_continue = True

    def _head(self) -> Head:
        version = self._parser.get_http_version()
        if version not in ("1.1", "1.0"):
            raise _refused(f"HTTP/{version} is not spoken here")
        if version == "1.1" and not self._has_host:
            raise _refused("it has no Host header")
        try:
            target = httptools.parse_url(self._target)
        except httptools.HttpParserInvalidURLError as exc:
            raise _refused("its target is no path") from exc
        if b"#" in self._target or (target.schema or b"http").lower() not in (b"http", b"https"):
            raise _refused("its target is no path")
        return Head(
            method=self._parser.get_method().decode("ascii"),
            path=target.path or b"/",
            query=target.query or b"",
            version=version,
            headers=self._headers,
            last=version != "1.1" or not self._parser.should_keep_alive(),
            expects_continue=self._expects_continue and version == "1.1",
        )

    def _head_bytes(self) -> int:
        fields = sum(len(name) + len(value) + len(b": \r\n") for name, value in self._headers)
        return len(self._target) + fields
