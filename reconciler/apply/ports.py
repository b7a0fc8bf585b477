"""Ports for backends: from our range, free right now, and handed out once."""

import socket
from collections.abc import Callable, Collection

from reconciler.errors import Transient

PROMISE_SECONDS = 60.0
"""A port that was handed out is not offered again for so long, unless its spawn fails."""


class Ports:
    """The range is walked round and round, so that a port rests before it is used again: a client
    that kept an old address finds nobody there, not another model (gpustack#4063)."""

    def __init__(self, ports: range, *, host: str, clock: Callable[[], float]) -> None:
        self._ports = ports
        self._host = host
        self._clock = clock
        self._next = 0
        self._promised: dict[int, float] = {}

    def take(self, used: Collection[int]) -> int:
        """A port that nothing is bound to and that is not `used` by a backend of ours.

        Raises Transient when there is none, with what stands in the way.
        """
        now = self._clock()
        self._promised = {port: until for port, until in self._promised.items() if until > now}
        bound = 0
        for step in range(len(self._ports)):
            position = (self._next + step) % len(self._ports)
            port = self._ports[position]
            if port in used or port in self._promised:
                continue
            if not self._can_bind(port):
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

    def release(self, port: int) -> None:
        """The port's backend is known from now on, or will never be."""
        self._promised.pop(port, None)

    def _can_bind(self, port: int) -> bool:
        # Without SO_REUSEADDR: vLLM binds long before it listens, and two such binds may succeed.
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind((self._host, port))
            except OSError:
                return False
            return True
