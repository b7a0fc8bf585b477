"""Sending a request to a backend and passing its answer on, byte for byte, as it comes."""

import asyncio
import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace

import aiohttp
from starlette.types import Send
from yarl import URL

from reconciler.errors import Transient
from reconciler.proxy import errors, headers
from reconciler.status import Endpoint

_CONNECT_SECONDS = 5.0
"""Backends are on this host: one that takes no connection in this time will not."""
_KEEPALIVE_SECONDS = 3.0
"""Shorter than vLLM's and llama-server's 5 s, so that it is us who close an idle connection."""
_HEAD_LINE_BYTES = 64 * 1024
_HEADERS = 1000
"""Of an answer; the client library's own limits are below what engines may send."""
_LARGE_BYTES = 1 << 20
"""Above this the client library wants a file: it writes bytes in one go."""


class BackendUnreachable(Transient):
    """It took no connection: the request certainly did not start."""


class BackendLost(Transient):
    """The connection ended before the first byte of the answer, or what came is no answer."""


class BackendLostMidway(Transient):
    """The connection ended in the middle of the answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request as the backend is to see it. `target`: path and query, as on the wire."""

    endpoint: Endpoint
    target: str
    headers: list[tuple[str, str]]
    body: bytes


@dataclass(slots=True)
class _Attempt:
    reused_connection: bool = False


class Upstream:
    """The HTTP client to the backends: two sessions, opened and closed with the application."""

    async def open(self) -> None:
        self._pooled = _session(aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_SECONDS))
        self._fresh = _session(aiohttp.TCPConnector(limit=0, force_close=True))

    async def close(self) -> None:
        await self._pooled.close()
        await self._fresh.close()

    async def send(self, call: Call) -> aiohttp.ClientResponse:
        """The head of the answer. Raises BackendUnreachable or BackendLost.

        A kept connection may be closed by the backend while our request is on its way; that is
        tried once more, on a fresh one. Anything else is not: it may be this request that kills.
        """
        attempt = _Attempt()
        try:
            return await _request(self._pooled, call, attempt)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as exc:
            raise BackendUnreachable(f"cannot connect to {_address(call)}: {exc}") from exc
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as exc:
            if not attempt.reused_connection:
                raise BackendLost(f"cannot get an answer from {_address(call)}: {exc}") from exc
        except aiohttp.ClientError as exc:
            raise BackendLost(f"cannot read the answer of {_address(call)}: {exc}") from exc
        try:
            return await _request(self._fresh, call, attempt)
        except aiohttp.ClientError as exc:
            raise BackendLost(f"cannot get an answer from {_address(call)}: {exc}") from exc


async def relay(
    response: aiohttp.ClientResponse,
    send: Send,
    *,
    served_by: bytes,
    model: str,
    on_first_byte: Callable[[], None],
) -> None:
    """Pass the answer on. Back-pressure is the client's: `send` waits, so nothing is read ahead.

    Raises BackendLostMidway; the answer is then left incomplete, after an error event where it is
    an event stream, and the caller must not complete it: an answer that was cut must look cut.
    """
    answer_headers = headers.to_client(response.raw_headers, served_by=served_by)
    start = {"status": response.status, "headers": answer_headers}
    await send({"type": "http.response.start", **start})
    tail = b"\n\n"
    first = True
    try:
        with _ending_with_connection(response):
            async for chunk in response.content.iter_any():
                if first:
                    first = False
                    on_first_byte()
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
                tail = (tail + chunk)[-2:] if len(chunk) < 2 else chunk[-2:]
    except (aiohttp.ClientError, OSError) as exc:
        if headers.is_event_stream(answer_headers):
            event = _error_event(model, after=tail)
            await send({"type": "http.response.body", "body": event, "more_body": True})
        raise BackendLostMidway(f"cannot read on from the backend of {model}: {exc}") from exc
    await send({"type": "http.response.body", "body": b"", "more_body": False})


@contextmanager
def _ending_with_connection(response: aiohttp.ClientResponse) -> Iterator[None]:
    """Whoever reads the answer sees the end of its connection.

    The client library tells them, but not after bytes that are no valid HTTP: it closes the
    connection and leaves its reader waiting for ever.
    """
    content, connection = response.content, response.connection
    protocol = connection.protocol if connection is not None else None
    closed = protocol.closed if protocol is not None else None
    if closed is None:  # the whole answer is here
        yield
        return

    def end(_: object) -> None:
        if not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("the answer is not valid HTTP"))

    closed.add_done_callback(end)
    closed.add_done_callback(_look_at)
    try:
        yield
    finally:
        closed.remove_done_callback(end)


def _look_at(closed: asyncio.Future[None]) -> None:
    """How the connection ended: what nobody looks at is logged as an error."""
    if not closed.cancelled():
        closed.exception()


def _error_event(model: str, *, after: bytes) -> bytes:
    """An event of its own: whatever was cut before it is ended first."""
    event = b"data: " + errors.as_json(errors.backend_lost_midway(model)) + b"\n\n"
    return event if after == b"\n\n" else b"\n\n" + event


async def _request(
    session: aiohttp.ClientSession, call: Call, attempt: _Attempt
) -> aiohttp.ClientResponse:
    response = await session.post(
        URL(f"http://{_address(call)}{call.target}", encoded=True),
        headers=call.headers,
        data=io.BytesIO(call.body) if len(call.body) > _LARGE_BYTES else call.body,
        allow_redirects=False,
        trace_request_ctx=attempt,
    )
    if not 200 <= response.status <= 599:  # 101 too: nobody asked for another protocol
        response.close()
        raise BackendLost(f"cannot pass on the answer of {_address(call)}: {response.status}")
    return response


def _address(call: Call) -> str:
    return f"{call.endpoint.host}:{call.endpoint.port}"


def _session(connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
    """Without limits of its own: a generation may take an hour, and a thousand may run."""
    trace = aiohttp.TraceConfig()
    trace.on_connection_reuseconn.append(_note_reuse)
    return aiohttp.ClientSession(
        connector=connector,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
        auto_decompress=False,
        max_line_size=_HEAD_LINE_BYTES,
        max_field_size=_HEAD_LINE_BYTES,
        max_headers=_HEADERS,
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        trace_configs=[trace],
    )


async def _note_reuse(
    session: aiohttp.ClientSession,
    context: SimpleNamespace,
    params: aiohttp.TraceConnectionReuseconnParams,
) -> None:
    context.trace_request_ctx.reused_connection = True
