"""The reader gives the same requests however their bytes are cut into pieces."""

from dataclasses import dataclass, field
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from reconciler.proxy.request_reader import Head, RequestReader

_PLAIN = b"GET /healthz?a=1 HTTP/1.1\r\nHost: a\r\n\r\n"
_EMPTY_LINES = b"\r\n\r\n" + _PLAIN
_BODY = (
    b"POST /v1/completions HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n{\r\n\r}"
)
_CHUNKED = (
    b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n1\r\n \r\n0\r\nX: 1\r\n\r\n"
)
_OFFER = (
    b"POST /x HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 9\r\n\r\nUpgrade: "
)
_LAST = b"GET /bye HTTP/1.0\r\n\r\n"

_requests = st.lists(st.sampled_from([_PLAIN, _EMPTY_LINES, _BODY, _CHUNKED, _OFFER]), max_size=5)
_cuts = st.lists(st.integers(0, 600), max_size=12)


@dataclass
class _Requests:
    """What was read: heads with whole bodies, and how many of them ended."""

    read: list[tuple[Head, bytearray]] = field(default_factory=list)
    ended: int = 0

    def head_ends(self, head: Head) -> None:
        self.read.append((head, bytearray()))

    def body_piece(self, piece: bytes) -> None:
        self.read[-1][1].extend(piece)

    def request_ends(self) -> None:
        self.ended += 1


def _read(*pieces: bytes) -> _Requests:
    into = _Requests()
    reader = RequestReader(into, limit_bytes=1000)
    for piece in pieces:
        assert reader.feed(piece) is None
    return into


@given(_requests, _cuts)
def test_pieces_make_no_difference(requests: list[bytes], cuts: list[int]) -> None:
    data = b"".join((*requests, _LAST))
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    pieces = [data[start:end] for start, end in pairwise(edges)]
    read = _read(*pieces)
    assert read == _read(data)
    assert read.ended == len(read.read) == len(requests) + 1


def test_a_request_is_read_as_it_was_sent() -> None:
    (body, chunked, offer, last), bodies = zip(
        *_read(_BODY, _CHUNKED, _OFFER, _LAST).read, strict=True
    )
    assert [bytes(b) for b in bodies] == [b"{\r\n\r}", b"{} ", b"Upgrade: ", b""]
    assert (body.path, body.expects_continue, body.last) == (b"/v1/completions", True, False)
    assert chunked.headers == [(b"transfer-encoding", b"chunked")]
    assert offer.headers == [(b"connection", b"upgrade"), (b"content-length", b"9")]
    assert (last.version, last.last) == ("1.0", True)


def test_very_many_offers_in_one_piece_are_passed_over() -> None:
    offer = b"GET / HTTP/1.1\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"
    assert _read(offer * 4000).ended == 4000
