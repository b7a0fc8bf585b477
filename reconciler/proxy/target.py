"""`X-Target-Server: NODE` and `?server=NODE`: answered by the node that the client names.

Both are taken off the request. Only who is known as a peer is ever called.
"""

from starlette.types import ASGIApp, Receive, Scope, Send

from reconciler.proxy import cluster_errors, guard, reply
from reconciler.proxy.board import StatusReader
from reconciler.proxy.errors import Problem
from reconciler.proxy.hop import Hop
from reconciler.proxy.peers.peer import Peer
from reconciler.proxy.peers.side import ClusterSide
from reconciler.proxy.query import take_parameter
from reconciler.status import Status

_HEADER = b"x-target-server"
_OUR_OWN = frozenset(("/healthz", "/readyz", "/metrics", "/metrics/backends"))
"""What each node says of itself, whoever is named."""


class TargetServer:
    """ASGI middleware. The header counts where both are given."""

    def __init__(self, app: ASGIApp, board: StatusReader, cluster: ClusterSide, hop: Hop) -> None:
        self._app = app
        self._board = board
        self._cluster = cluster
        self._hop = hop

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _OUR_OWN:
            await self._app(scope, receive, send)
            return
        query, from_query = take_parameter(scope["query_string"], "server")
        from_headers = [
            value.decode("latin-1").strip() for key, value in scope["headers"] if key == _HEADER
        ]
        targets = from_headers or from_query
        if not targets:
            await self._app(scope, receive, send)
            return
        kept = [(key, value) for key, value in scope["headers"] if key != _HEADER]
        scope = {**scope, "headers": kept, "query_string": query}
        target = targets[0]
        if not target or len(set(targets)) > 1:
            answerer: Peer | Problem | None = cluster_errors.no_one_target(targets)
        else:
            answerer = self._answerer(scope, target)
        if isinstance(answerer, Problem):
            await reply.send_problem(scope, send, answerer)
        elif isinstance(answerer, Peer):
            await self._hop.pass_on(scope, receive, send, answerer)
        else:
            guard.pin(scope)
            await self._app(scope, receive, send)

    def _answerer(self, scope: Scope, target: str) -> Peer | Problem | None:
        """None: this node itself."""
        status, passage = self._board.current(), guard.passage(scope)
        if target in _names_of_self(status):
            return None
        if passage.by is not None and guard.is_routed(scope):
            return cluster_errors.misdirected(target, node=status.node, by=passage.by)
        if self._cluster.own is not None and self._cluster.own.is_at(target):
            return None
        peers = self._cluster.peers.current()
        peer = peers.named(target)
        if peer is None:
            return cluster_errors.unknown_target(target, (status.node, *peers.names))
        return peer


def _names_of_self(status: Status) -> tuple[str | None, ...]:
    return (status.node, status.pod_name, status.pod_ip)
