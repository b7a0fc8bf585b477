"""`X-Target-Server: NODE` and `?server=NODE`: answered by the node that the client names.

Without peers the one node that can be meant is this one. Both are taken off the request.
"""

from starlette.types import ASGIApp, Receive, Scope, Send

from reconciler.proxy import errors, headers, reply
from reconciler.proxy.board import StatusReader
from reconciler.proxy.peers.side import ClusterSide
from reconciler.proxy.query import take_parameter
from reconciler.status import Status

_HEADER = b"x-target-server"
_OUR_OWN = ("/healthz", "/readyz", "/metrics")
"""What each node says of itself, whoever is named."""


class TargetServer:
    """ASGI middleware. The header counts where both are given."""

    def __init__(self, app: ASGIApp, board: StatusReader, cluster: ClusterSide) -> None:
        self._app = app
        self._board = board
        self._cluster = cluster

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(_OUR_OWN):
            await self._app(scope, receive, send)
            return
        query, from_query = take_parameter(scope["query_string"], "server")
        from_header = headers.first(scope["headers"], _HEADER)
        target = from_header.decode("latin-1").strip() if from_header is not None else from_query
        if target is None:
            await self._app(scope, receive, send)
            return
        status = self._board.current()
        if target not in _names_of_self(status):
            known = (status.node, *self._cluster.peers.current().names)
            await reply.send_problem(scope, send, errors.unknown_target(target, known))
            return
        kept = [(key, value) for key, value in scope["headers"] if key != _HEADER]
        await self._app({**scope, "headers": kept, "query_string": query}, receive, send)


def _names_of_self(status: Status) -> tuple[str | None, ...]:
    return (status.node, status.pod_name, status.pod_ip)
