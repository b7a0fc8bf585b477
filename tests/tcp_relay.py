"""A TCP relay that cuts connections: the network between a client and a real server."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial


class TcpRelay:
    """Passes bytes on to 127.0.0.1:`target_port`.

    `cut_after`: a connection is closed after this many bytes of answers; None: never. `on_bytes`
    is called with the bytes that one connection has passed to the client, as they pass. `passed`:
    those of all. `accepted`: how many connections were made.
    """

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.cut_after: int | None = None
        self.on_bytes: Callable[[int], None] = lambda _passed: None
        self.passed = 0
        self.accepted = 0
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._start(self._accept)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self._open:
            _shut(connection)
        for thread in self._threads:
            thread.join()
        for connection in self._open:
            connection.close()

    def _start(self, target: Callable[[], None]) -> None:
        thread = threading.Thread(target=target)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                # Else some MiB are on their way to the client already, which no cut can call back.
                client.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 128 * 1024)
                server = socket.create_connection(("127.0.0.1", self._target_port))
            except OSError:
                return
            self.accepted += 1
            self._open += [client, server]
            self._start(partial(self._pump, client, server, answers=False))
            self._start(partial(self._pump, server, client, answers=True))

    def _pump(self, origin: socket.socket, target: socket.socket, *, answers: bool) -> None:
        passed = 0
        try:
            while data := origin.recv(16 * 1024):
                cut = self.cut_after if answers else None
                target.sendall(data if cut is None else data[: max(0, cut - passed)])
                passed += len(data)
                if answers:
                    with self._lock:
                        self.passed += len(data)
                    self.on_bytes(passed)
                if cut is not None and passed >= cut:
                    break
        except OSError:
            pass
        _shut(origin)
        _shut(target)


@contextmanager
def relay_to(port: int) -> Iterator[TcpRelay]:
    relay = TcpRelay(port)
    try:
        yield relay
    finally:
        relay.close()


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
