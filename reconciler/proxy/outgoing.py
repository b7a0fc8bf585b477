"""One request on aiohttp's connections, with its parser and writer, but past its session.

`ClientSession` prepares each request for what is never asked of it here: redirects, cookies,
proxies, traces, credentials in URLs, headers of its own. That was a fifth of what a small request
costs. What is called instead is not in aiohttp's reference, though it is what its session calls:
with a new version of it run tests/proxy, where every fault of a backend is played.
"""

import asyncio
import errno
import ipaddress
import socket
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from functools import partial
from typing import IO

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http_writer import StreamWriter
from aiohttp.tracing import Trace
from multidict import CIMultiDict
from yarl import URL

from reconciler.plan.peering import Address

CONNECT_SECONDS = 5.0
"""Backends are on this host, peers near: who takes no connection in this time will not."""
_WORD_SECONDS = 1.0
_VANISHED = (
    (socket.TCP_KEEPIDLE, 10),
    (socket.TCP_KEEPINTVL, 5),
    (socket.TCP_KEEPCNT, 4),
    (socket.TCP_USER_TIMEOUT, 30_000),
)
"""30 s in all, in both directions."""
_HEAD_LINE_BYTES = 64 * 1024
_HEADERS = 1000
"""Of an answer; the client library's own limits are below what engines may send."""
_SMALL_BYTES = 32 * 1024
"""What a socket takes in one go: writing it never waits."""
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
"""No other limit: a generation may take an hour."""
_AS_GIVEN: CIMultiDict[None] = CIMultiDict({"Content-Type": None})

Data = bytes | IO[bytes] | AsyncIterator[bytes]


@dataclass(slots=True)
class Attempt:
    """How far a request is. `under_way`: the other side reads it. `heard`: something came back.
    `given_up`: by `Connector.give_up`."""

    new_connection: bool = False
    under_way: bool = False
    heard: bool = False
    given_up: bool = False


class _Protocol(ResponseHandler):
    """Notes that something came, and when: a reset before is another thing than one after."""

    heard = False
    given_up = False
    quiet_since = 0.0

    def begin(self) -> None:
        """Another request."""
        self.heard, self.quiet_since = False, self._loop.time()

    def data_received(self, data: bytes) -> None:
        self.heard, self.quiet_since = True, self._loop.time()
        super().data_received(data)


class Connector(aiohttp.TCPConnector):
    """For `request`. Notes whether it had to have a connection made for it."""

    def __init__(self, *, keepalive_seconds: float | None = None) -> None:
        """`keepalive_seconds`: that an idle connection is kept; None: none is."""
        if keepalive_seconds is None:
            super().__init__(limit=0, force_close=True, socket_factory=_new_socket)
        else:
            super().__init__(
                limit=0, keepalive_timeout=keepalive_seconds, socket_factory=_new_socket
            )
        self._factory = partial(_Protocol, loop=self._loop)  # type: ignore[assignment]

    def give_up(self, address: Address, quiet_seconds: float) -> None:
        """Cut off what waits for an answer from there, or for more of one, and has waited in vain
        for so long."""
        for protocol in list(self._acquired):
            transport = protocol.transport
            if not isinstance(protocol, _Protocol) or transport is None:
                continue
            if self._loop.time() - protocol.quiet_since < quiet_seconds:
                continue
            if transport.get_extra_info("peername")[:2] == (address.host, address.port):
                protocol.given_up = True
                transport.abort()

    async def _create_connection(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - theirs
    ) -> ResponseHandler:
        if isinstance(req, _Request):
            req.attempt.new_connection = True
        return await super()._create_connection(req, traces, timeout)


class _Request(aiohttp.ClientRequest):
    attempt: Attempt

    def update_auto_headers(self, skip_auto_headers: Iterable[str] | None) -> None:
        """No header is added. To tell aiohttp which ones not to add takes it two copies."""
        self._skip_auto_headers = _AS_GIVEN

    async def send(self, conn: Connection) -> aiohttp.ClientResponse:
        """A small body is written at once. aiohttp makes a task for it, which costs more."""
        self.attempt.under_way = True
        protocol, body = conn.protocol, self._body
        small = isinstance(body, aiohttp.BytesPayload) and (body.size or 0) <= _SMALL_BYTES
        if not small or protocol is None or protocol.writing_paused:
            return await super().send(conn)
        if conn._connector.force_close:
            self.headers["Connection"] = "close"
        writer = StreamWriter(protocol, self.loop)
        line = f"{self.method} {self.url.raw_path_qs} HTTP/1.1"
        await writer.write_headers(line, self.headers)
        await self.write_bytes(writer, conn)
        return aiohttp.ClientResponse(
            self.method,
            self.url,
            writer=None,
            continue100=None,
            timer=self._timer,
            request_info=self.request_info,
            traces=[],
            loop=self.loop,
            session=self._session,
            stream_writer=writer,
        )


async def request(
    connector: Connector,
    method: str,
    url: URL,
    headers: list[tuple[str, str]],
    data: Data | None,
    attempt: Attempt,
) -> aiohttp.ClientResponse:
    """The head of the answer. Raises aiohttp's errors, as its session does.

    With `Expect: 100-continue` among `headers`, `data` is asked for when the other side says so, or
    has said nothing for a second: it need not know that (RFC 9110, section 10.1.1).
    """
    loop = asyncio.get_running_loop()
    request = _Request(method, url, headers=headers, data=data, loop=loop)
    request.attempt = attempt
    if (word := request._continue) is not None:
        loop.call_later(_WORD_SECONDS, _go_on, word)
    try:
        return await _send(connector, request)
    except aiohttp.ClientError:
        raise
    except TimeoutError as exc:
        raise aiohttp.ConnectionTimeoutError(f"no connection in {CONNECT_SECONDS:g} s") from exc
    except OSError as exc:
        raise aiohttp.ClientOSError(*exc.args) from exc


def why_not_connected(exc: aiohttp.ClientError, seconds: float) -> str:
    """Of an attempt that had so long: a clause of which the other side is the subject."""
    if isinstance(exc, aiohttp.ClientConnectorDNSError):
        return f"has a name that leads nowhere: {exc.os_error.strerror or exc.os_error}"
    if not isinstance(exc, aiohttp.ClientConnectorError):
        return f"takes no connection within {seconds:g} s"
    if exc.os_error.errno == errno.ECONNREFUSED:
        return "refuses connections"
    return f"takes no connection: {exc.os_error.strerror or exc.os_error}"


def _go_on(word: asyncio.Future[bool]) -> None:
    if not word.done():
        word.set_result(True)


async def _send(connector: Connector, request: _Request) -> aiohttp.ClientResponse:
    connection = await connector.connect(request, [], _TIMEOUT)
    protocol = connection.protocol
    assert isinstance(protocol, _Protocol)
    protocol.begin()
    try:
        protocol.set_response_params(
            skip_payload=request.method == "HEAD",
            read_until_eof=True,
            auto_decompress=False,
            max_line_size=_HEAD_LINE_BYTES,
            max_field_size=_HEAD_LINE_BYTES,
            max_headers=_HEADERS,
        )
        response = await request.send(connection)
        try:
            return await response.start(connection)
        except BaseException:
            response.close()
            raise
    except BaseException:
        request.attempt.heard = protocol.heard
        request.attempt.given_up = protocol.given_up
        connection.close()
        raise


def _new_socket(address: aiohttp.AddrInfoType) -> socket.socket:
    """To another host: one that is gone without a word is noticed within the time of the silence,
    whether we wait for it or it does not take what we send."""
    family, kind, protocol, _, where = address
    made = socket.socket(family, kind, protocol)
    if not ipaddress.ip_address(where[0]).is_loopback:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _VANISHED:
            made.setsockopt(socket.IPPROTO_TCP, option, value)
    return made
