"""Lines of JSON between the agent and its transfer process, over a socket of a pair."""

import json
import select
import socket
import threading
from typing import Any

Message = dict[str, Any]
_READ_BYTES = 64 * 1024


class Channel:
    """One end. Several threads may send; one receives."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._rest = b""
        self._sending = threading.Lock()
        self._readable = select.poll()  # select() fails where 1024 files are open
        self._readable.register(end, select.POLLIN)

    def send(self, message: Message) -> None:
        """Raises OSError where the other end is closed."""
        with self._sending:
            self._end.sendall(json.dumps(message).encode() + b"\n")

    def receive(self, timeout_seconds: float | None = None) -> Message | None:
        """None: nothing came within this time. Raises EOFError where the other end is closed."""
        while b"\n" not in self._rest:
            if not self._readable.poll(timeout_seconds and 1000 * timeout_seconds):
                return None
            came = self._end.recv(_READ_BYTES)
            if not came:
                raise EOFError
            self._rest += came
        line, _, self._rest = self._rest.partition(b"\n")
        message: Message = json.loads(line)
        return message

    def end_sending(self) -> None:
        """The other end's `receive` raises EOFError; it may still answer."""
        self._end.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._end.close()
