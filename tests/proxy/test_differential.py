"""What we take for a request, h11 takes for the same one, or refuses.

Valid requests, broken at random places with what breaks HTTP parsers.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import h11
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.proxy.errors import Header
from reconciler.proxy.request_reader import Head, RequestReader

_LIMIT_BYTES = 100_000
_VALID = [
    b"GET /healthz?a=1 HTTP/1.1\r\nHost: a\r\nX-A: b\r\n\r\n",
    b"POST /x HTTP/1.1\r\nHost: a\r\nContent-Length: 12\r\nX-A: b\r\n\r\n0\r\n\r\nGET /2 \r",
    b"POST /x HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n10\r\n"
    b"0\r\n\r\nGET /2 HTTP\r\n0\r\nX-A: b\r\n\r\n",
    b"POST /x HTTP/1.0\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
    b"PUT http://a/x?y HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n"
    b"Content-Length: 1\r\n\r\nz",
    b"HEAD / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 0\r\n\r\n",
]
_NASTY = [
    *(b"\r", b"\n", b"\r\n", b"\r\n\r\n", b" ", b"\t", b"\0", b"\x0b", b"\x0c", b"\x7f", b"\xa0"),
    *(b"\xff", b":", b",", b";", b'"', b"=", b"+", b"-", b"_", b"#", b"?", b"/", b"%00", b"\\"),
    *(b"0", b"1", b"f", b"0x", b"00000000", b"0\r\n\r\n", b"ffffffffffffffff", b"1 1", b"close"),
    *(b"Host: b\r\n", b"Content-Length: 3\r\n", b"Content-Length: 0\r\n", b"HTTP/1.0", b"HTTP/1.1"),
    *(b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: identity\r\n", b"chunked", b", "),
    *(b"identity", b"Connection: close\r\n", b"Connection: upgrade\r\nUpgrade: h2c\r\n"),
    *(b"GET /2 HTTP/1.1\r\nHost: a\r\n\r\n", b"Content-Length", b"Transfer-Encoding", b"X: "),
]
_changes = st.lists(
    st.tuples(st.integers(0, 400), st.integers(0, 3), st.sampled_from([b"", *_NASTY])), max_size=4
)


@dataclass
class Ours:
    """What the reader told: the requests that are complete, and one that is not."""

    complete: list[tuple[Head, bytes]] = field(default_factory=list)
    head: Head | None = None
    body: bytearray = field(default_factory=bytearray)

    def head_ends(self, head: Head) -> None:
        self.head, self.body = head, bytearray()

    def body_piece(self, piece: bytes) -> None:
        self.body += piece

    def request_ends(self) -> None:
        assert self.head is not None
        self.complete.append((self.head, bytes(self.body)))
        self.head = None


@dataclass
class Theirs:
    """`refused`: why h11 did not read on."""

    complete: list[tuple[h11.Request, bytes]] = field(default_factory=list)
    refused: str | None = None


def _read_by_h11(data: bytes) -> Theirs:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=_LIMIT_BYTES)
    connection.receive_data(data)
    theirs = Theirs()
    head: h11.Request | None = None
    body = bytearray()
    while True:
        try:
            event = connection.next_event()
        except h11.RemoteProtocolError as exc:
            theirs.refused = str(exc)
            return theirs
        match event:
            case h11.Request() as head:
                body = bytearray()
            case h11.Data() as piece:
                body += piece.data
            case h11.EndOfMessage() if head is not None:
                theirs.complete.append((head, bytes(body)))
                connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                connection.send(h11.EndOfMessage())
                if connection.our_state is not h11.DONE:
                    return theirs
                connection.start_next_cycle()
            case _:
                return theirs


_JUSTIFIED = re.compile(
    rb"no request line received"
    rb"|illegal request line: bytearray\(b'(?:\\r|\\n)*[!-~]+ +[!-~]+ +HTTP/1\.[01]'\)"
    rb"|illegal chunk header: bytearray\(b'0{15,}[0-9A-Fa-f]*(?:;.*)?\\r\\n'\)"
)
"""Where we read on. Empty lines stand before a request (RFC 9112, section 2.2), of bare CR or LF
too; several spaces in its first line (section 3); more zeros than h11 counts before the size of a
chunk (section 7.1)."""


def _same(ours: tuple[Head, bytes], theirs: tuple[h11.Request, bytes]) -> bool:
    (head, body), (request, their_body) = ours, theirs
    return (
        head.method == request.method.decode()
        and _is_target(request.target, head)
        and head.version == request.http_version.decode()
        and _comparable(head.headers) == _comparable(request.headers)
        and body == their_body
    )


def _is_target(target: bytes, head: Head) -> bool:
    """Ours has no scheme and host, which h11 leaves where they are, and no `?` of no query."""
    path, _, query = re.sub(rb"\A[A-Za-z]+://[^/?]*", b"", target).partition(b"?")
    return (path or b"/", query) == (head.path, head.query)


def _comparable(headers: Iterable[Header]) -> list[Header]:
    """We drop offers of other protocols, and h11 writes codings in lower case."""
    return [
        (bytes(name), bytes(value).lower() if name == b"transfer-encoding" else bytes(value))
        for name, value in headers
        if name != b"upgrade"
    ]


def _broken(requests: list[bytes], changes: list[tuple[int, int, bytes]]) -> bytes:
    data = b"".join(requests)
    for place, cut, put in changes:
        at = place % (len(data) + 1)
        data = data[:at] + put + data[at + cut :]
    return data


@settings(max_examples=1000)
@given(st.builds(_broken, st.lists(st.sampled_from(_VALID), min_size=1, max_size=2), _changes))
def test_what_we_read_h11_reads_alike_or_not_at_all(data: bytes) -> None:
    ours, theirs = Ours(), _read_by_h11(data)
    RequestReader(ours, limit_bytes=_LIMIT_BYTES).feed(data)
    for number, read in enumerate(ours.complete):
        if number < len(theirs.complete):
            assert _same(read, theirs.complete[number])
        else:
            assert theirs.refused is not None
            assert _JUSTIFIED.fullmatch(theirs.refused.encode("latin-1"))
            return
        if read[0].last:
            return
