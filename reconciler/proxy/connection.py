"""A client's connection: requests one after the other, each state with a time limit of its own.

    IDLE ──▶ HEAD ──▶ BODY ──▶ ANSWERING ──▶ IDLE
                                   │
                                   ├──▶ LINGERING ──▶ CLOSING    the client still sends
                                   └──▶ CLOSING

While a request is answered it reads on: an end of the input, whatever came before it, ends the
work for this client. uvicorn's own class stops to read while a request waits for its turn, bounds
neither heads nor bodies in time, and leaves connections open on which only empty lines come.
"""

import asyncio
import contextvars
import socket
import struct
import urllib.parse
from collections import deque
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, assert_never, cast

import uvicorn
from starlette.types import Scope
from uvicorn.protocols.utils import get_local_addr, get_remote_addr
from uvicorn.server import ServerState

from reconciler.proxy.deadline import Deadline
from reconciler.proxy.errors import Header, Problem
from reconciler.proxy.exchange import Answer, Exchange
from reconciler.proxy.hangups import Flow, Hangups
from reconciler.proxy.request_reader import Head, RequestReader

_HEAD_BYTES = 64 * 1024
_UNREAD_BYTES = 64 * 1024
"""Of a body that the application does not read yet; then we do not read on either."""
_AHEAD_BYTES = 64 * 1024
_AHEAD_REQUESTS = 16
"""What may come before the answer to an earlier request is complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`arrival_seconds`: for a whole head, for the next piece of a body, and for an answer that is
    sent to move. `keepalive_seconds`: from an answer to the next request. `linger_seconds`: for a
    client to stop sending what nobody will read.
    """

    arrival_seconds: float
    keepalive_seconds: float
    linger_seconds: float


class State(Enum):
    IDLE = auto()
    HEAD = auto()
    BODY = auto()
    ANSWERING = auto()
    LINGERING = auto()
    """All is said. Closed now, with bytes on the way to us, it would be reset: answer lost."""
    CLOSING = auto()


class Connection(asyncio.Protocol):
    """For uvicorn's server, which makes one for each client.

    Of the exchanges the first one is answered, and the last one may still arrive.
    """

    limits: Limits
    hangups: Hangups

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self._app = config.loaded_app
        self._server = server_state
        self._connections: set[Any] = server_state.connections
        self._app_state = app_state
        self._loop = _loop or asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._reader = RequestReader(self, limit_bytes=_HEAD_BYTES)
        self._deadline = Deadline(self._loop, self._time_is_up)
        self._state = State.IDLE
        self._exchanges: deque[Exchange] = deque()
        self._ahead_bytes = 0
        self._unsent_bytes = 0
        self._deaf = False
        """Nothing that still comes is read as a request."""
        self._ending = False

    # What the server and the event loop call.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's is none by its class
        self.flow = Flow(self.transport, self.hangups, self._close)
        self._addresses = get_local_addr(self.transport), get_remote_addr(self.transport)
        self._connections.add(self)
        self._deadline.set(self.limits.arrival_seconds)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            return
        if self._state is State.ANSWERING:
            self._ahead_bytes += len(data)
            if self._ahead_bytes > _AHEAD_BYTES:
                self._stop_listening()
                return
        problem = self._reader.feed(data)
        if problem is not None and not self._deaf:
            self._refuse(problem)
        self._settle()

    def eof_received(self) -> None:
        """As Go's server and nginx do, we take the end of the input for the end of the client."""
        self._close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._state = State.CLOSING
        self._deadline.close()
        self._reader.close()
        self._connections.discard(self)
        self._leave()
        self._exchanges.clear()
        self.flow.end()

    def pause_writing(self) -> None:
        self.flow.pause_writing()

    def resume_writing(self) -> None:
        self.flow.resume_writing()

    def shutdown(self) -> None:
        """Answer what is under way, nothing else, and close."""
        self._ending = True
        if self._state in (State.BODY, State.ANSWERING):
            self._exchanges[0].last = True
        else:
            self._close()

    # What the reader calls.

    def head_ends(self, head: Head) -> None:
        if len(self._exchanges) > _AHEAD_REQUESTS:
            self._stop_listening()
        if not self._deaf:
            self._queue(self._scope(head), last=head.last, expects_continue=head.expects_continue)

    def body_piece(self, piece: bytes) -> None:
        if not self._deaf:
            unread = self._exchanges[-1].take(piece)
            if unread > _UNREAD_BYTES and len(self._exchanges) == 1:
                self.flow.pause_reading()

    def request_ends(self) -> None:
        if not self._deaf:
            self._exchanges[-1].complete_body()

    # What an exchange calls.

    def default_headers(self) -> list[Header]:
        return self._server.default_headers

    def write(self, data: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(data)

    def answered(self, exchange: Exchange) -> None:
        self._server.total_requests += 1
        self._exchanges.popleft()
        self._ahead_bytes = 0
        self.flow.resume_reading()
        if exchange.last:
            self._hang_up(exchange)
            return
        if self._exchanges:
            self._start(self._exchanges[0])
        self._settle()

    def cut(self, exchange: Exchange) -> None:
        self._close()

    def reset_at_end(self, on: bool) -> None:
        if not self.transport.is_closing():
            sock: socket.socket = self.transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", on, 0))

    # Requests.

    def _queue(self, scope: Scope, *, last: bool, expects_continue: bool) -> None:
        exchange = Exchange(scope, self, last=last, expects_continue=expects_continue)
        self._exchanges.append(exchange)
        if len(self._exchanges) == 1:
            self._start(exchange)

    def _start(self, exchange: Exchange) -> None:
        task = self._loop.create_task(
            exchange.run(self._app), name="request", context=self._context.copy()
        )
        self._server.tasks.add(task)
        task.add_done_callback(self._server.tasks.discard)

    def _scope(self, head: Head) -> Scope:
        server, client = self._addresses
        path = head.path.decode("latin-1")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": head.version,
            "server": server,
            "client": client,
            "scheme": "http",
            "root_path": "",
            "method": head.method,
            "path": urllib.parse.unquote(path) if "%" in path else path,
            "raw_path": head.path,
            "query_string": head.query,
            "headers": head.headers,
            "state": self._app_state.copy(),
        }

    def _refuse(self, problem: Problem) -> None:
        """Answer it in its turn, as the last one."""
        newest = self._exchanges[-1] if self._exchanges else None
        if newest is not None and not newest.body_complete:
            newest.refuse(problem)
        elif newest is None or not newest.last:
            head = self._reader.refused_head()
            self._queue(self._scope(head), last=True, expects_continue=False)
            self._exchanges[-1].refuse(problem)
        self._deaf = True

    def _stop_listening(self) -> None:
        """The client sends more ahead than we keep: what is under way is the last."""
        self._deaf = True
        first = self._exchanges[0]
        first.last = True
        self._exchanges = deque((first,))

    # States.

    def _settle(self) -> None:
        """Find the state, after bytes or an answer, and set its time limit."""
        first = self._exchanges[0] if self._exchanges else None
        if first is None:
            state = State.HEAD if self._reader.in_head else State.IDLE
        elif first.body_complete or self._deaf or first.answer is not Answer.AWAITED:
            state = State.ANSWERING
        else:
            state = State.BODY
        if state is self._state and state is not State.BODY:
            return
        self._enter(state)

    def _enter(self, state: State) -> None:
        self._state = state
        if state is State.ANSWERING:
            self._deadline.clear()
        elif state is State.IDLE:
            self._deadline.set(self.limits.keepalive_seconds)
        elif state is State.LINGERING:
            self._deadline.set(self.limits.linger_seconds)
        else:
            self._deadline.set(self.limits.arrival_seconds)

    def _time_is_up(self) -> None:
        match self._state:
            case State.IDLE | State.HEAD:
                self._close()
            case State.BODY if (
                self.flow.read_paused or self._exchanges[0].answer is not Answer.AWAITED
            ):
                self._enter(State.BODY)  # it is not the client's turn
            case State.BODY:
                self._close()
            case State.LINGERING | State.CLOSING:
                self._give_up_unless_it_moves()
            case State.ANSWERING:
                pass
            case _:
                assert_never(self._state)

    def _give_up_unless_it_moves(self) -> None:
        unsent = self.transport.get_write_buffer_size()
        if 0 < unsent < self._unsent_bytes:
            self._unsent_bytes = unsent
            self._enter(self._state)
        else:
            self.transport.abort()

    def _hang_up(self, exchange: Exchange) -> None:
        if self._ending or (exchange.body_complete and not self._deaf):
            self._close()
        else:
            self._deaf = True
            self._unsent_bytes = self.transport.get_write_buffer_size()
            if not self.transport.is_closing():
                self.transport.write_eof()
            self._enter(State.LINGERING)

    def _close(self) -> None:
        """Once what is written has been sent."""
        if self._state is not State.CLOSING:
            self._deaf = True
            self._unsent_bytes = self.transport.get_write_buffer_size()
            self._enter(State.CLOSING)
        self._leave()
        self.transport.close()

    def _leave(self) -> None:
        for exchange in self._exchanges:
            exchange.leave()
