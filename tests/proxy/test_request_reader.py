"""The reader gives the same requests however their bytes are cut into pieces."""

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.proxy.request_reader import Head, RequestReader

_PLAIN = b"GET /healthz?a=1 HTTP/1.1\r\nHost: a\r\n\r\n"
_EMPTY_LINES = b"\r\n\r\n" + _PLAIN
_BODY = (
    b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
    b"Content-Length: 5\r\n\r\n{\r\n\r}"
)
_CHUNKED = (
    b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2\r\n{}\r\n1\r\n \r\n0\r\nX: 1\r\n\r\n"
)
_OFFER = (
    b"POST /x HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n"
    b"Content-Length: 9\r\n\r\nUpgrade: "
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


def _cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place for place in places if place < len(data)), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


@given(_requests, _cuts)
def test_pieces_make_no_difference(requests: list[bytes], cuts: list[int]) -> None:
    data = b"".join((*requests, _LAST))
    read = _read(*_cut(data, cuts))
    assert read == _read(data)
    assert read.ended == len(read.read) == len(requests) + 1


def test_a_request_is_read_as_it_was_sent() -> None:
    (body, chunked, offer, last), bodies = zip(
        *_read(_BODY, _CHUNKED, _OFFER, _LAST).read, strict=True
    )
    assert [bytes(b) for b in bodies] == [b"{\r\n\r}", b"{} ", b"Upgrade: ", b""]
    assert (body.path, body.expects_continue, body.last) == (b"/v1/completions", True, False)
    assert chunked.headers == [(b"host", b"a"), (b"transfer-encoding", b"chunked")]
    assert [name for name, _ in offer.headers] == [b"host", b"connection", b"content-length"]
    assert (last.version, last.last) == ("1.0", True)


def test_very_many_offers_in_one_piece_are_passed_over() -> None:
    offer = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"
    assert _read(offer * 4000).ended == 4000


_POST = b"POST /x HTTP/1.1\r\nHost: a\r\n"


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost:\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET / HTTP/0.9\r\nHost: a\r\n\r\n",
        b"GET / HTTP/2.0\r\nHost: a\r\n\r\n",
        b"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET ftp://a/b HTTP/1.1\r\nHost: a\r\n\r\n",
        _POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        _POST + b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        _POST + b"Transfer-Encoding: ,chunked\r\n\r\n0\r\n\r\n",
        b"POST /x HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        _POST + b"Content-Length: " + b"0" * 5000 + b"3\r\n\r\nabc",
    ],
)
def test_what_others_may_read_in_another_way_is_refused(data: bytes) -> None:
    read = _Requests()
    problem = RequestReader(read, limit_bytes=10_000).feed(data)
    assert problem is not None
    assert (problem.status, problem.code, read.read) == (400, "invalid_request", [])


@pytest.mark.parametrize(
    "host", [b"a.example:8000", b"127.0.0.1", b"[::1]:80", b"[fe80::1%25eth0]"]
)
def test_hosts_are_names_and_addresses(host: bytes) -> None:
    assert _read(b"GET / HTTP/1.1\r\nHost: " + host + b"\r\n\r\n").ended == 1


def test_spaces_around_a_value_are_no_part_of_it() -> None:
    head, _ = _read(_POST + b"Expect: \t 100-Continue \t\r\nX: \t b c\t\r\n\r\n").read[0]
    assert head.headers[1:] == [(b"expect", b"100-Continue"), (b"x", b"b c")]
    assert head.expects_continue


def test_nobody_waits_for_100_in_http_1_0() -> None:
    head, _ = _read(b"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n").read[0]
    assert not head.expects_continue


@given(st.lists(st.integers(0, 5000), max_size=12), st.integers(600, 1300))
def test_a_head_that_is_too_large_is_so_wherever_it_stands(cuts: list[int], padding: int) -> None:
    """Behind other requests, in one piece with them or not."""
    long = b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * padding + b"\r\n\r\n"
    data = _BODY + _PLAIN * 5 + long
    reader = RequestReader(_Requests(), limit_bytes=1000)
    problems = [problem for piece in _cut(data, cuts) if (problem := reader.feed(piece))]
    assert bool(problems) == (len(b"/Host: a\r\nX: \r\n") + padding > 1000)


def test_what_was_read_of_a_refused_head_is_known() -> None:
    reader = RequestReader(_Requests(), limit_bytes=1000)
    assert reader.feed(
        _PLAIN + b"HEAD /v1/messages?x=1 HTTP/1.1\r\nX-Request-Id: i\r\nX: 1\r\nno colon\r\n"
    )
    head = reader.refused_head()
    assert (head.method, head.path) == ("HEAD", b"/v1/messages")
    assert head.headers == [(b"x-request-id", b"i")]
