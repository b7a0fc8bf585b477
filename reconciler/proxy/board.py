"""Where the HTTP side reads the node's status, and what it derives from it once per status."""

import time
from collections.abc import Callable
from typing import Protocol

from starlette.types import Scope

from reconciler.proxy import route_table
from reconciler.proxy.guard import is_for_this_node
from reconciler.proxy.peers.peer import NOBODY, PeerReader
from reconciler.proxy.route_table import RouteTable
from reconciler.status import Status


class StatusReader(Protocol):
    """The published status; a change is a new object, never a changed one."""

    def current(self) -> Status: ...


class Routes:
    """The route tables of the status and the peers that are current, derived when either is
    another one and somebody asks. `clock`: Unix time."""

    def __init__(
        self, board: StatusReader, peers: PeerReader, clock: Callable[[], float] = time.time
    ) -> None:
        self._board = board
        self._peers = peers
        self._clock = clock
        self._table = route_table.build(board.current(), peers.current())
        self._alone = route_table.build(board.current())

    def current(self) -> RouteTable:
        """Of the cluster."""
        status, peers, table = self._board.current(), self._peers.current(), self._table
        if status is not table.status or peers is not table.peers:
            now = self._clock() if peers.all or table.peers.all else None
            table = self._table = route_table.build(status, peers, table, now=now)
        return table

    def alone(self) -> RouteTable:
        """Of this node: what a request is answered from that a peer has passed on."""
        status, table = self._board.current(), self._alone
        if status is not table.status:
            now = self._clock() if self._peers.current().all else None
            table = self._alone = route_table.build(status, NOBODY, table, now=now)
        return table

    def answering(self, scope: Scope) -> RouteTable:
        """The one that this request is answered from."""
        table = self.current()
        return self.alone() if table.peers.all and is_for_this_node(scope) else table
