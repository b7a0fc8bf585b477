"""Ports for backends: from our range, free right now, and handed out once on this host."""

import socket
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from reconciler.errors import Transient

PROMISE_SECONDS = 60.0
"""A port that was handed out is not offered again for so long, unless its spawn fails."""


class Ports:
    """The range is walked round and round, so that a port rests before it is used again: a client
    that kept an old address finds nobody there, not another model (gpustack#4063).

    What is handed out is marked, for the other agents of the host, which see no port until the
    backend has bound it: two that start 20 models at once had a dozen failed starts."""

    def __init__(self, ports: range, *, host: str, clock: Callable[[], float]) -> None:
        self._ports = ports
        self._host = host
        self._clock = clock
        self._next = 0
        self._promised: dict[int, float] = {}
        self._marks: dict[int, socket.socket] = {}

    def take(self, used: Collection[int]) -> int:
        """A port that nothing is bound to and that is not `used` by a backend of ours, nor promised
        to one of any agent here.

        Raises Transient when there is none, with what stands in the way.
        """
        now = self._clock()
        for port in [port for port, until in self._promised.items() if until <= now]:
            self.give_back(port)
        bound = 0
        for step in range(len(self._ports)):
            position = (self._next + step) % len(self._ports)
            port = self._ports[position]
            if port in used or port in self._promised:
                continue
            if not self._can_have(port):
                bound += 1
                continue
            self._next = position + 1
            self._promised[port] = now + PROMISE_SECONDS
            return port
        ours = len(self._ports) - bound
        raise Transient(
            f"no free port in {self._ports.start}-{self._ports.stop - 1}: "
            f"{ours} are used by backends, {bound} are bound otherwise"
        )

    @contextmanager
    def starting(self, port: int) -> Iterator[None]:
        """Start its backend meanwhile: it has the port from then on, until that is given back."""
        try:
            yield
        except BaseException:
            self.give_back(port)
            raise
        self._promised.pop(port, None)

    def keep(self, port: int) -> None:
        """A backend that an agent before this one has left has it, bound or not yet."""
        if port not in self._marks and (mark := self._mark(port)) is not None:
            self._marks[port] = mark

    def give_back(self, port: int) -> None:
        """The port's backend is gone, or will never be."""
        self._promised.pop(port, None)
        if (mark := self._marks.pop(port, None)) is not None:
            mark.close()

    def close(self) -> None:
        """No backend is started any more."""
        for port in tuple(self._marks):
            self.give_back(port)

    def _can_have(self, port: int) -> bool:
        """Whether it is ours now."""
        if (mark := self._mark(port)) is None:
            return False
        if not self._can_bind(port):  # asked last: who had the mark before has bound it by now
            mark.close()
            return False
        self._marks[port] = mark
        return True

    def _mark(self, port: int) -> socket.socket | None:
        """A name that the kernel keeps for whoever lives and has it open, apart for each network,
        as ports are; None: another has it."""
        mark = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            mark.bind(f"\0xgen-model/{self._host}:{port}")
        except OSError:
            mark.close()
            return None
        return mark

    def _can_bind(self, port: int) -> bool:
        # Without SO_REUSEADDR: vLLM binds long before it listens, and two such binds may succeed.
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((self._host, port))
            except OSError:
                return False
            return True
