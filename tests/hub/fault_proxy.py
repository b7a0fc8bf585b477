"""An HTTP proxy between a client and a real S3 server that spoils answers on demand.

Every request has a connection of its own. What a plan says of a GET of an object is done to its
answer; everything else passes.
"""

import re
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

_RANGE = re.compile(rb"\r\nRange: bytes=(\d+)-", re.IGNORECASE)
_LENGTH = re.compile(rb"(\r\nContent-Length: )(\d+)", re.IGNORECASE)
_PIECE_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Get:
    """A GET of an object. `number`: how many came before. `offset`: of the first byte asked for."""

    number: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What becomes of one answer, at its body's byte `at`.

    `cut`: it ends there; `reset`: with a reset. `short`: it says that there is no more. `stall`:
    nothing follows, until the proxy is released. `flip`: a bit of that byte is another. `then`:
    called there. `answer`: status, and code of S3's error, instead of it all.
    """

    at: int = 0
    cut: bool = False
    reset: bool = False
    short: bool = False
    stall: bool = False
    flip: bool = False
    then: Callable[[], object] | None = None
    answer: tuple[int, str] | None = None


class FaultProxy:
    """`plan`: the fault of each GET of an object; None: none. `passed`: bytes of their bodies.

    `pace`: called with a GET and the size of each piece that has passed; it may wait.
    """

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.plan: Callable[[Get], Fault | None] = lambda _get: None
        self.pace: Callable[[Get, int], None] = lambda _get, _count: None
        self.gets: list[Get] = []
        self.passed = 0
        self.stalled = 0
        self.open_now = 0
        self.most_open = 0
        self._released = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def release(self) -> None:
        """What is stalled goes on."""
        self._released.set()

    def close(self) -> None:
        self.release()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(client,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError), socket.create_connection(self._target) as server:
            head, rest = _head_of(client)
            if not head:
                return
            get = self._get_of(head)
            fault = (self.plan(get) if get else None) or Fault(at=-1)
            if fault.answer is not None:
                client.sendall(_error(*fault.answer))
                return
            server.sendall(head.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n") + rest)
            self._count_open(get, 1)
            try:
                self._pass(server, client, fault, get)
            finally:
                self._count_open(get, -1)

    @property
    def _target(self) -> tuple[str, int]:
        return ("127.0.0.1", self._target_port)

    def _get_of(self, head: bytes) -> Get | None:
        """None: it is no GET of an object."""
        line = head.partition(b"\r\n")[0]
        if not line.startswith(b"GET ") or b"list-type" in line:
            return None
        found = _RANGE.search(head)
        with self._lock:
            get = Get(number=len(self.gets), offset=int(found[1]) if found else 0)
            self.gets.append(get)
        return get

    def _count_open(self, get: Get | None, difference: int) -> None:
        with self._lock:
            self.open_now += difference if get else 0
            self.most_open = max(self.most_open, self.open_now)

    def _pass(
        self, server: socket.socket, client: socket.socket, fault: Fault, get: Get | None
    ) -> None:
        head, piece = _head_of(server)
        if fault.short:
            head = _LENGTH.sub(lambda found: found[1] + str(fault.at).encode(), head)
        client.sendall(head)
        passed = 0
        is_due = fault.at >= 0
        while piece or (piece := server.recv(_PIECE_BYTES)):
            if is_due and passed + len(piece) > fault.at:
                is_due = False
                before = fault.at - passed
                client.sendall(piece[:before])
                self._count(before, get)
                passed += before
                piece = self._spoil(client, piece[before:], fault)
                if not piece:
                    return
            client.sendall(piece)
            self._count(len(piece), get)
            passed += len(piece)
            piece = b""

    def _spoil(self, client: socket.socket, piece: bytes, fault: Fault) -> bytes:
        """What follows instead of `piece`; nothing: it ends."""
        if fault.then is not None:
            fault.then()
        if fault.stall:
            with self._lock:
                self.stalled += 1
            self._released.wait()
        if fault.reset:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if fault.cut or fault.reset or fault.short:
            return b""
        return bytes([piece[0] ^ 1]) + piece[1:] if fault.flip else piece

    def _count(self, count: int, get: Get | None) -> None:
        if get is not None:
            with self._lock:
                self.passed += count
            self.pace(get, count)


@contextmanager
def fault_proxy(port: int) -> Iterator[FaultProxy]:
    proxy = FaultProxy(port)
    try:
        yield proxy
    finally:
        proxy.close()


def _head_of(connection: socket.socket) -> tuple[bytes, bytes]:
    """A head with its empty line, and what came after it."""
    came = b""
    while b"\r\n\r\n" not in came:
        piece = connection.recv(_PIECE_BYTES)
        if not piece:
            return b"", b""
        came += piece
    head, line, rest = came.partition(b"\r\n\r\n")
    return head + line, rest


def _error(status: int, code: str) -> bytes:
    body = f"<Error><Code>{code}</Code><Message>said the proxy</Message></Error>".encode()
    head = (
        f"HTTP/1.1 {status} Spoilt\r\nContent-Type: application/xml\r\nConnection: close\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
