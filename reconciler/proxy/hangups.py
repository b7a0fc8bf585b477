"""Clients that leave while nothing is read from them.

Their end waits behind what they have sent and nobody takes yet, as long as somebody further on
takes nothing. The kernel knows it all the same, and tells it to whoever asks for nothing else.
"""

import asyncio
import select
import socket
from collections.abc import Callable
from contextlib import suppress

from uvicorn.protocols.http.flow_control import FlowControl

_MOST = 64
"""Events that are taken at a time; the others are there at the next look."""


class Hangups:
    """For one event loop, in which it is made and closed."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._left: dict[int, Callable[[], None]] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._epoll.fileno(), self._look)

    def close(self) -> None:
        self._left.clear()
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def watch(self, fd: int, left: Callable[[], None]) -> None:
        """`left` is called once, unless it is forgotten before."""
        self._left[fd] = left
        self._epoll.register(fd, select.EPOLLRDHUP | select.EPOLLONESHOT)

    def forget(self, fd: int, left: Callable[[], None]) -> None:
        """Also of a connection that is closed, whose number another one may have by now."""
        if self._left.get(fd) == left:
            del self._left[fd]
            with suppress(OSError):
                self._epoll.unregister(fd)

    def _look(self) -> None:
        for fd, _ in self._epoll.poll(0, _MOST):
            if (left := self._left.get(fd)) is not None:
                left()


class Flow(FlowControl):
    """A connection's, for which it is heard as well that its client leaves while it is not read."""

    def __init__(
        self, transport: asyncio.Transport, hangups: Hangups, left: Callable[[], None]
    ) -> None:
        super().__init__(transport)
        sock: socket.socket = transport.get_extra_info("socket")
        self._fd = sock.fileno()
        self._hangups = hangups
        self._leaves = left

    def pause_reading(self) -> None:
        if not self.read_paused:
            self._hangups.watch(self._fd, self._leaves)
        super().pause_reading()

    def resume_reading(self) -> None:
        if self.read_paused:
            self._hangups.forget(self._fd, self._leaves)
        super().resume_reading()

    def end(self) -> None:
        """The connection is closed, and let go of: in a circle, both would stay in memory."""
        self._hangups.forget(self._fd, self._leaves)
        self._leaves = _nobody
        self.resume_writing()


def _nobody() -> None:
    """Waits to hear it any more."""
