"""Where the HTTP side reads the node's status, and what it derives from it once per status."""

from typing import Protocol

from reconciler.proxy import route_table
from reconciler.proxy.route_table import RouteTable
from reconciler.status import Status


class StatusReader(Protocol):
    """The published status; a change is a new object, never a changed one."""

    def current(self) -> Status: ...


class Routes:
    """The route table of the status that is current, derived when the status is another one."""

    def __init__(self, board: StatusReader) -> None:
        self._board = board
        self._table = route_table.build(board.current())

    def current(self) -> RouteTable:
        status = self._board.current()
        if status is not self._table.status:
            self._table = route_table.build(status)
        return self._table
