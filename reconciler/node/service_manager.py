"""The line to systemd: one datagram a message, as sd_notify(3) has it.

No library: the protocol is this, and a lost message must not end an agent.
"""

import contextlib
import os
import socket
from collections.abc import MutableMapping
from typing import Self

_SOCKET, _WATCHDOG, _WATCHED_PID = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"


class ServiceManager:
    """Who started this process as a service and wants to hear of it.

    Args:
        address: Of its datagram socket: a path, or a name of the abstract namespace after an `@`.
        watchdog_seconds: Silence after which it ends this process; None: it does not watch.
    """

    def __init__(self, address: str, *, watchdog_seconds: float | None = None) -> None:
        self._address = f"\0{address[1:]}" if address.startswith("@") else address
        self.watchdog_seconds = watchdog_seconds

    @classmethod
    def taken_from(cls, environment: MutableMapping[str, str], *, watched: int) -> Self | None:
        """Who is named there; what names it is removed, so that no child speaks in our place.

        Args:
            environment: This process's own.
            watched: The pid that a watchdog has to name to be meant for us.

        Returns:
            None: nobody is named, or by an address that is none of a local socket.
        """
        address, usec, pid = (
            environment.pop(name, "") for name in (_SOCKET, _WATCHDOG, _WATCHED_PID)
        )
        if not address.startswith(("/", "@")):
            return None
        is_number = usec.isascii() and usec.isdecimal()
        meant = pid in ("", str(watched)) and is_number and int(usec) > 0
        return cls(address, watchdog_seconds=int(usec) / 1_000_000 if meant else None)

    def tell(self, *assignments: str) -> None:
        """Send `NAME=VALUE`s in one message. One that cannot be delivered at once is lost: the
        next one says more, and a manager that is gone needs none."""
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as line,
        ):
            line.sendto("\n".join(assignments).encode(), self._address)


def watched_pid(*, supervised: bool) -> int:
    """Of the service's main process: ours, or of the supervisor that stands in its place."""
    return os.getppid() if supervised else os.getpid()
