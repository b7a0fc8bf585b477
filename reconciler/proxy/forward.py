"""Sending a request to a backend, or to another agent."""

import io
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import aiohttp
from yarl import URL

from reconciler.errors import Transient
from reconciler.plan.peering import Address
from reconciler.proxy import outgoing
from reconciler.proxy.outgoing import Attempt, Connector, Data

_KEEPALIVE_SECONDS = 3.0
"""Shorter than vLLM's and llama-server's 5 s, so that it is us who close an idle connection."""
_LARGE_BYTES = 1 << 20
"""Above this the client library wants a file: it writes bytes in one go."""


class BackendUnreachable(Transient):
    """It took no connection: the request certainly did not start."""


class BackendLost(Transient):
    """The connection ended before the head of an answer. `heard`: something came all the same."""

    def __init__(self, message: str, *, heard: bool) -> None:
        super().__init__(message)
        self.heard = heard


@dataclass(frozen=True, slots=True, kw_only=True)
class Pieces:
    """A body that is not in memory; `pieces` may be called again, for another try."""

    size_bytes: int
    pieces: Callable[[], AsyncIterator[bytes]]


@dataclass(slots=True, kw_only=True)  # not frozen: that costs a microsecond a request
class Call:
    """One request as the other side is to see it. `at`: host and port, `target`: path and query, as
    on the wire."""

    at: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes | Pieces


class Upstream:
    """The HTTP client to backends and peers, opened and closed with the application.

    `peers`: to other agents, for requests that pass as they are. A body that streams through cannot
    be sent again, so none goes on a connection that its other end may be closing just now.
    """

    async def open(self) -> None:
        self._pooled = Connector(keepalive_seconds=_KEEPALIVE_SECONDS)
        self._fresh = Connector()
        self.peers = Connector()

    async def close(self) -> None:
        """Whose answer is not complete loses it, as if its backend had gone. May be repeated."""
        await self.peers.close()
        await self._fresh.close()  # first: what the other loses is not tried again
        await self._pooled.close()

    def give_up(self, address: Address, quiet_seconds: float) -> None:
        """See `Connector`. Its requests fail as if the connection had been reset."""
        for connector in (self._pooled, self._fresh, self.peers):
            connector.give_up(address, quiet_seconds)

    async def send(self, call: Call, attempt: Attempt) -> aiohttp.ClientResponse:
        """The head of the answer. Raises BackendUnreachable or BackendLost.

        A kept connection may be closed by the other side while our request is on its way; that is
        tried once more, on a fresh one. Anything else is not: it may be this request that kills.
        """
        try:
            return await _request(self._pooled, call, attempt)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as exc:
            raise BackendUnreachable(f"cannot connect to {call.at}: {exc}") from exc
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as exc:
            if attempt.new_connection or attempt.heard or attempt.given_up:
                raise _lost(call, attempt, exc) from exc
        except aiohttp.ClientError as exc:
            cause = f"cannot read the answer of {call.at}: {exc}"
            raise BackendLost(cause, heard=True) from exc
        try:
            return await _request(self._fresh, call, attempt)
        except aiohttp.ClientError as exc:
            raise _lost(call, attempt, exc) from exc


async def _request(connector: Connector, call: Call, attempt: Attempt) -> aiohttp.ClientResponse:
    sent, body = call.headers, call.body
    if isinstance(body, Pieces):
        sent = [*sent, ("content-length", str(body.size_bytes))]
    url = URL(f"http://{call.at}{call.target}", encoded=True)
    response = await outgoing.request(connector, "POST", url, sent, _as_data(body), attempt)
    if not 200 <= response.status <= 599:  # 101 too: nobody asked for another protocol
        response.close()
        cause = f"cannot pass on the answer of {call.at}: {response.status}"
        raise BackendLost(cause, heard=True)
    return response


def _lost(call: Call, attempt: Attempt, exc: Exception) -> BackendLost:
    cause = "it is not reached any more, and has sent nothing" if attempt.given_up else exc
    return BackendLost(f"cannot get an answer from {call.at}: {cause}", heard=attempt.heard)


def _as_data(body: bytes | Pieces) -> Data:
    if isinstance(body, Pieces):
        return body.pieces()
    return io.BytesIO(body) if len(body) > _LARGE_BYTES else body
