"""systemd's end of sd_notify: a datagram socket, by a path or an abstract name."""

import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from tests.waiting import wait_until


class ServiceSocket:
    """What came is kept, in order."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.came: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self._socket.setblocking(False)

    @property
    def environment(self) -> dict[str, str]:
        return {"NOTIFY_SOCKET": self.address}

    def read(self) -> list[str]:
        """All that has come so far, a line each."""
        with contextlib.suppress(BlockingIOError):
            while True:
                self.came += self._socket.recv(8192).decode().split("\n")
        return self.came

    def forget(self) -> None:
        self.read()
        self.came = []

    def wait(self, start: str, *, seconds: float = 60.0) -> str:
        """For a line that begins so; returns the newest one."""
        wait_until(
            lambda: any(line.startswith(start) for line in self.read()),
            what=f"{start} in {self.came}",
            seconds=seconds,
        )
        return [line for line in self.came if line.startswith(start)][-1]

    def quiet_for(self, seconds: float) -> list[str]:
        """What comes in that time."""
        self.forget()
        time.sleep(seconds)
        return self.read()

    def close(self) -> None:
        self._socket.close()


@contextlib.contextmanager
def service_socket(folder: Path, *, abstract: bool = False) -> Iterator[ServiceSocket]:
    """Closed in the end."""
    address = f"@xgen-test{folder}" if abstract else str(folder / "notify")
    made = ServiceSocket(address)
    try:
        yield made
    finally:
        made.close()
