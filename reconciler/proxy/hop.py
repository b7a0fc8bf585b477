"""Passing a request on to another agent as it is, and its answer back, as they come.

Nothing is held, read ahead or looked into: the body of the request flows while the peer takes it,
the answer while the client does. An answer that comes before the request is complete ends the
upload, as it does without a hop.
"""

from collections.abc import AsyncIterator
from contextlib import nullcontext

import aiohttp
import structlog
from starlette.types import Message, Receive, Scope, Send
from yarl import URL

from reconciler.metrics import Metrics, UpstreamFault
from reconciler.proxy import (
    access,
    cluster_errors,
    error_shape,
    errors,
    guard,
    headers,
    outgoing,
    reply,
)
from reconciler.proxy.board import StatusReader
from reconciler.proxy.client import ClientLeft, WhileClientStays
from reconciler.proxy.errors import Header, Problem
from reconciler.proxy.exchange import BODY_FOLLOWS
from reconciler.proxy.forward import Upstream
from reconciler.proxy.outgoing import Attempt
from reconciler.proxy.peers.peer import Peer
from reconciler.proxy.peers.side import ClusterSide
from reconciler.proxy.peers.silence import QUIET_SECONDS
from reconciler.proxy.relay import ending_with_connection
from reconciler.proxy.visits import Visits

_WITHOUT_BODY = (204, 304)
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n")
_TAIL_BYTES = 4
_HUNG = f"has not answered for {QUIET_SECONDS:g} s"
_ERRORS = (b'data: {"error":', b'data: {"type":"error"')

log = structlog.get_logger()


class Hop:
    """To peers only, and to an address of theirs only: no part of it is the client's."""

    def __init__(
        self,
        board: StatusReader,
        cluster: ClusterSide,
        upstream: Upstream,
        metrics: Metrics,
        visits: Visits,
    ) -> None:
        self._board = board
        self._cluster = cluster
        self._upstream = upstream
        self._metrics = metrics
        self._visits = visits

    async def pass_on(self, scope: Scope, receive: Receive, send: Send, peer: Peer) -> None:
        # Whoever follows a feed is no reason to stay for an agent that ends.
        waited_for = _is_inference(scope["path"])
        if waited_for and self._board.current().closed:
            await reply.send_problem(scope, send, errors.draining(self._board.current().node))
            return
        counted = self._visits.hop() if waited_for else nullcontext()
        try:
            with counted, WhileClientStays(scope):
                problem = await self._pass_on(scope, receive, send, peer)
        except ClientLeft:
            return
        if problem is not None:
            await reply.send_problem(scope, send, problem)

    async def _pass_on(
        self, scope: Scope, receive: Receive, send: Send, peer: Peer
    ) -> Problem | None:
        if not scope["raw_path"].startswith(b"/"):  # OPTIONS *
            return cluster_errors.not_for_nodes(scope["path"])
        upload, attempt = _Upload(receive), Attempt()
        try:
            response = await self._ask(scope, upload, peer, attempt)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as exc:
            cause = outgoing.why_not_connected(exc, outgoing.CONNECT_SECONDS)
            unreachable = cluster_errors.peer_unreachable(self._as_seen(peer), cause)
            return self._failed(peer, UpstreamFault.PEER_UNREACHABLE, unreachable, cause)
        except aiohttp.ClientError as exc:
            if upload.broke_off:  # the server says why, where it was not the client that left
                raise ClientLeft("the body of the request does not come any more") from exc
            return self._lost(peer, _HUNG if attempt.given_up else _lost(exc))
        try:
            if (why := _why_no_answer(response, scope["method"])) is not None:
                return self._lost(peer, why)
            await self._relay(response, scope, send, peer)
        finally:
            response.close()
        return None

    async def _ask(
        self, scope: Scope, upload: "_Upload", peer: Peer, attempt: Attempt
    ) -> aiohttp.ClientResponse:
        target, query = scope["raw_path"].decode("latin-1"), scope["query_string"].decode("latin-1")
        url = f"http://{peer.address}{target}"
        of_body = headers.of_body(scope["headers"])
        more = [
            *(of_body or ()),
            (b"x-request-id", scope["state"]["request_id"]),
            *self._marks(scope, peer),
        ]
        return await outgoing.request(
            self._upstream.peers,
            scope["method"],
            URL(f"{url}?{query}" if query else url, encoded=True),
            headers.to_peer(scope["headers"], more),
            None if of_body is None else upload.pieces(),
            attempt,
        )

    def _marks(self, scope: Scope, peer: Peer) -> list[Header]:
        """The node is named again: its address may be another's by now."""
        marks = guard.marks(
            node=self._board.current().node,
            token=self._cluster.token,
            on_host=access.why_not_allowed(scope) is None,
        )
        return marks if peer.node is None else [*marks, (b"x-target-server", peer.node.encode())]

    def _as_seen(self, peer: Peer) -> Peer:
        """As the view has it now: much may have been heard of it while its answer was awaited."""
        every = self._cluster.peers.current().all
        same = (each for each in every if (each.address, each.node) == (peer.address, peer.node))
        return next(same, peer)

    def _lost(self, peer: Peer, cause: str) -> Problem:
        lost = cluster_errors.peer_lost(self._as_seen(peer), cause)
        return self._failed(peer, UpstreamFault.PEER_LOST, lost, cause)

    def _failed(self, peer: Peer, fault: UpstreamFault, problem: Problem, cause: str) -> Problem:
        self._metrics.count_upstream(fault)
        log.warning("peer failed", node=peer.node, address=str(peer.address), cause=problem.message)
        if cause is not _HUNG:  # the view has had it as not reachable for as long
            self._cluster.loads.failed(peer.address, cause)
        return problem

    async def _relay(
        self, response: aiohttp.ClientResponse, scope: Scope, send: Send, peer: Peer
    ) -> None:
        """When the peer is lost in mid-answer, that is left incomplete: it must look cut."""
        content, answer_headers = response.content, headers.from_peer(response.raw_headers)
        head: Message = {
            "type": "http.response.start",
            "status": response.status,
            "headers": answer_headers,
        }
        if content.is_eof() and content.exception() is None:
            await send({**head, BODY_FOLLOWS: True})
            await send({"type": "http.response.body", "body": content.read_nowait()})
            return
        await send(head)
        piece = b"\n\n"
        try:
            with ending_with_connection(response):
                while more := await content.readany():
                    await send({"type": "http.response.body", "body": more, "more_body": True})
                    piece = more if len(more) >= _TAIL_BYTES else piece[-_TAIL_BYTES:] + more
        except (aiohttp.ClientError, OSError) as exc:
            self._metrics.count_upstream(UpstreamFault.PEER_LOST_MIDWAY)
            # Not told to balancing: it may be that its engine went away, and not the peer itself.
            log.warning("peer lost in mid-answer", node=peer.node, cause=str(exc))
            if headers.is_event_stream(answer_headers) and _is_inference(scope["path"]):
                event = _last_event(
                    scope, cluster_errors.peer_lost_midway(self._as_seen(peer)), piece
                )
                await send({"type": "http.response.body", "body": event, "more_body": True})
            return
        await send({"type": "http.response.body", "body": b""})


class _Upload:
    """The body of a request as it comes. `broke_off`: it will never be complete."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.broke_off = False

    async def pieces(self) -> AsyncIterator[bytes]:
        more = True
        while more:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.broke_off = True
                raise ClientLeft("the client left while it sent its request")
            more = message.get("more_body", False)
            if piece := message.get("body", b""):
                yield piece


def _last_event(scope: Scope, problem: Problem, sent: bytes) -> bytes:
    """Of a stream that is cut behind `sent`; nothing where the peer has told an error itself."""
    if sent.rstrip().rpartition(b"\n")[2].startswith(_ERRORS):
        return b""
    shape = error_shape.of_path(scope["path"])
    whole = error_shape.whole(shape, problem, scope["state"]["request_id"])
    event = error_shape.event(shape, whole)
    return event if sent.endswith(_EVENT_ENDS) else b"\n\n" + event


def _is_inference(path: str) -> bool:
    return not path.startswith("/api/") or path.startswith("/api/inference/")


def _why_no_answer(response: aiohttp.ClientResponse, method: str) -> str | None:
    """What no agent answers with: a clause of which the peer is the subject."""
    if not 200 <= response.status <= 599:
        return f"answers with status {response.status}, which nobody asked for"
    given = response.headers
    if "x-served-by" not in given:
        return f"is no xgen-model agent, and answers with status {response.status}"
    has_end = "content-length" in given or "transfer-encoding" in given
    if method != "HEAD" and response.status not in _WITHOUT_BODY and not has_end:
        return "does not say where its answer ends"
    return None


def _lost(exc: aiohttp.ClientError) -> str:
    if isinstance(exc, aiohttp.ClientResponseError):
        return "answers with what is not HTTP"
    return "ended the connection before it answered"
