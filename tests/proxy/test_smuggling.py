"""Requests that others might read in another way are refused, and nothing behind them is read.

Judged by h11; whole, cut in and behind the ends of lines, and byte by byte.
"""

from tests.proxy.agent import running_agent
from tests.proxy.matrix import (
    ASK,
    CHUNKED,
    OLD,
    POST,
    Case,
    chunks,
    hold,
    length,
    refused,
)
from tests.proxy.stand_in import StandIn

NONSENSE = {
    "no host": refused(POST[: -len("Host: a\r\n")] + b"Content-Length: 0\r\n\r\n"),
    "empty host": refused(length(ASK).replace(b"Host: a", b"Host:")),
    "two hosts": refused(length(ASK, b"Host: a")),
    "a list of hosts": refused(length(ASK).replace(b"Host: a", b"Host: a, b")),
    "bare LF": refused(length(ASK).replace(b"\r\n", b"\n")),
    "bare LF in a line": refused(length(ASK, b"X: a\nContent-Length: 1")),
    "bare LF at the end": refused(POST + b"Content-Length: 15\r\n\n" + ASK),
    "bare CR": refused(length(ASK, b"X: a\rY: b")),
    "folded": refused(length(ASK, b"X: a\r\n b")),
    "folded first": refused(length(ASK, head=POST.replace(b"\r\nHost", b"\r\n Host"))),
    "tabs in the first line": refused(length(ASK).replace(b" ", b"\t", 2)),
    "space before it": refused(b" " + length(ASK)),
    "space behind it": refused(length(ASK).replace(b"1.1\r", b"1.1 \r")),
    "method in lower case": refused(length(ASK).replace(b"POST", b"post")),
    "unknown method": refused(length(ASK).replace(b"POST", b"POTS")),
    "NUL in a value": refused(length(ASK, b"X: a\0b")),
    "NUL in a name": refused(length(ASK, b"X\0: a")),
    "NUL in the target": refused(length(ASK).replace(b"s HTTP", b"s\0 HTTP")),
    "control byte": refused(length(ASK, b"X: a\x01b")),
    "Latin-1 in a name": refused(length(ASK, b"X\xe9: a")),
    "Latin-1 in the target": refused(length(ASK).replace(b"s HTTP", b"s\xe9 HTTP")),
    "no name": refused(length(ASK, b": a")),
    "no colon": refused(length(ASK, b"X")),
    "fragment": refused(length(ASK).replace(b"s HTTP", b"s#x HTTP")),
    "0.9": refused(b"GET /healthz\r\n\r\n", method="GET"),
    "1.2": refused(length(ASK).replace(b"1.1", b"1.2")),
    "2.0": refused(length(ASK).replace(b"1.1", b"2.0")),
    "HTTP/2": refused(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "TLS": refused(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    "CONNECT": refused(b"CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n"),
    "HEAD": refused(length(b"", b"X").replace(b"POST", b"HEAD"), method="HEAD"),
}


async def test_nonsense_is_refused_and_the_connection_ends(llm: StandIn) -> None:
    async with running_agent(llm.as_model()) as agent:
        await hold(agent, llm, NONSENSE)


_SMUGGLED = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 15\r\n\r\n" + ASK


def _coded(value: bytes, *lines: bytes, name: bytes = b"Transfer-Encoding") -> Case:
    more = b"".join(line + b"\r\n" for line in lines)
    head = POST + name + b": " + value + b"\r\n" + more + b"\r\n"
    return refused(head + b"f\r\n" + ASK + b"\r\n0\r\n\r\n" + _SMUGGLED)


def _sized(value: bytes, name: bytes = b"Content-Length") -> Case:
    return refused(POST + name + b": " + value + b"\r\n\r\n" + ASK + _SMUGGLED)


def _chunk(size: bytes, data: bytes = ASK + b"\r\n", end: bytes = b"0\r\n\r\n") -> Case:
    return refused(CHUNKED + size + data + end + _SMUGGLED)


SMUGGLING = {
    "CL.TE": refused(length(b"0\r\n\r\n" + _SMUGGLED, b"Transfer-Encoding: chunked")),
    "TE.CL": _coded(b"chunked", b"Content-Length: 4"),
    "CL.TE of another coding": refused(length(ASK, b"Transfer-Encoding: identity")),
    "equal lengths": refused(length(ASK, b"Content-Length: 15")),
    "other lengths": refused(length(ASK, b"Content-Length: 3")),
    **{
        f"length {value!r}": _sized(value)
        for value in (
            *(b"+15", b"-15", b"15, 15", b"15,15", b"1 5", b"0x0f", b"15.0", b"1_5", b"1e1", b""),
            *(b"\x0b15", b"15\x0b", b"15;", b'"15"', b"\xb115", b"9" * 20, b"9" * 400),
            *(b"18446744073709551615", b"18446744073709551631", b"0" * 5000 + b"15"),
        )
    },
    "length, name with a space": _sized(b"15", b"Content-Length "),
    "length, name with a tab": _sized(b"15", b"Content-Length\t"),
    **{
        f"coding {value!r}": _coded(value)
        for value in (
            *(b"chunked, identity", b"identity, chunked", b"gzip, chunked", b"chunked, chunked"),
            *(b"xchunked", b"chunkedx", b"chunked\x0b", b"\x0bchunked", b"chunked\xa0", b""),
            *(b"chunked;q=1", b'"chunked"', b",chunked", b"chunked,", b"identity", b"chun ked"),
            *(b"\r\n chunked", b"chunked\0", b"chunked\x0c", b"c\xd4\xb0hunked"),
        )
    },
    "coding, name with a space": _coded(b"chunked", name=b"Transfer-Encoding "),
    "coding, name with a tab": _coded(b"chunked", name=b"Transfer-Encoding\t"),
    "coding, name with an invisible space": _coded(
        b"chunked", name=b"Transfer-Encoding\xe2\x80\x8b"
    ),
    "coding, name with a soft hyphen": _coded(b"chunked", name=b"Transfer\xad-Encoding"),
    "two codings": _coded(b"chunked", b"Transfer-Encoding: chunked"),
    "two codings, the last": _coded(b"identity", b"Transfer-Encoding: chunked"),
    "two codings, the first": _coded(b"chunked", b"Transfer-Encoding: identity"),
    "coding in 1.0": refused(chunks(ASK).replace(b"1.1", b"1.0") + _SMUGGLED),
    "coding in 1.0, with a length": refused(
        length(b"0\r\n\r\n", b"Transfer-Encoding: chunked", head=OLD) + _SMUGGLED
    ),
    **{
        f"chunk {size!r}": _chunk(size + b"\r\n")
        for size in (
            *(b"0xf", b"+f", b"-f", b"0_f", b"f ", b" f", b"f\t", b"", b"g", b"f,", b"f\x0b"),
            *(b"1000000000000000f", b"f" * 17, b"f;a\n", b"f;a\r", b'f;a="\r\n"', b"f;a\0"),
            *(b"f ;a=b", b"f; a=b", b"f;", b"\xef\xbc\x96", b"f;a=b\x7f"),
        )
    },
    "chunk, bare LF behind its size": _chunk(b"f\n"),
    "chunk, bare CR behind its size": _chunk(b"f\r"),
    "chunk, bare LF behind it": _chunk(b"f\r\n", ASK + b"\n"),
    "chunk, nothing behind it": _chunk(b"f\r\n", ASK),
    "chunk, other bytes behind it": _chunk(b"f\r\n", ASK + b"XX"),
    "chunk, bare LF behind the last": _chunk(b"f\r\n", end=b"0\n\r\n"),
    "chunk, bare LF at the end": _chunk(b"f\r\n", end=b"0\r\n\n"),
    "trailer, bare LF": _chunk(b"f\r\n", end=b"0\r\nX: a\n\r\n"),
    "trailer, a length": _chunk(b"f\r\n", end=b"0\r\nContent-Length: 5\r\n\r\n"),
    "trailer, a coding": _chunk(b"f\r\n", end=b"0\r\nTransfer-Encoding: chunked\r\n\r\n"),
    "trailer, folded": _chunk(b"f\r\n", end=b"0\r\nX: a\r\n b\r\n\r\n"),
    "trailer, a space before the colon": _chunk(b"f\r\n", end=b"0\r\nX : a\r\n\r\n"),
}


async def test_nothing_is_smuggled(llm: StandIn) -> None:
    """RFC 9112, sections 6.1 and 6.3: refused, and the connection closed."""
    async with running_agent(llm.as_model()) as agent:
        await hold(agent, llm, SMUGGLING)
