"""The process that fetches large objects, for the agent at the other end of a socket.

    python -P -m reconciler.hub.transfer_child DESCRIPTOR        settings as JSON on stdin

Threads that move 1 GB/s beside an event loop let it wait for the interpreter's lock. A byte and two
descriptors on the socket are an order: a channel, and the file to write. It ends with the agent,
and gives way to it, and to the engines, where the processors are busy.
"""

import json
import os
import signal
import socket
import sys
import threading
import time
from typing import Any

from reconciler.errors import Damaged, Transient
from reconciler.hub.channel import Channel, Message
from reconciler.hub.objects import HubObject
from reconciler.hub.proxies import Proxies
from reconciler.hub.rate_limit import RateLimit
from reconciler.hub.s3 import S3Store
from reconciler.hub.s3_settings import S3Settings

_TELL_SECONDS = 0.05
_NICENESS = 10


def main(descriptor: int) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # a terminal's or a pod's: the agent ends us in order
    os.nice(_NICENESS)
    store = _store(json.load(sys.stdin))
    orders = socket.socket(fileno=descriptor)
    while True:
        descriptors = socket.recv_fds(orders, 1, 2)[1]
        if not descriptors:
            os._exit(0)  # without our threads: they may hang in a connection
        end, file = descriptors
        channel = Channel(socket.socket(fileno=end))
        threading.Thread(target=_serve, args=(store, channel, file), daemon=True).start()


def _store(given: dict[str, Any]) -> S3Store:
    settings = given["settings"]
    proxies = Proxies(**settings.pop("proxies"))
    return S3Store(S3Settings(**settings, proxies=proxies), rate=RateLimit(given["rate"]))


def _serve(store: S3Store, channel: Channel, file: int) -> None:
    order = channel.receive()
    assert order is not None
    agent = _Agent(channel, order)
    threading.Thread(target=agent.wait_for_end, daemon=True).start()
    answer: Message
    try:
        store.read(
            HubObject(**order["stored"]),
            file,
            on_bytes=agent.on_bytes,
            cancelled=agent.cancelled.is_set,
            journal=agent if order["part_bytes"] else None,
        )
        answer = {"done": order["stored"]["size_bytes"]}
    except Transient as exc:
        answer = {"transient": str(exc), "retry_after_seconds": exc.retry_after_seconds}
    except Damaged as exc:
        answer = {"damaged": str(exc)}
    except OSError as exc:
        answer = {"errno": exc.errno, "text": exc.strerror}
    except BaseException as exc:  # noqa: BLE001  the thread's boundary: it is raised in the agent
        answer = {"bug": repr(exc)}
    os.close(file)
    agent.answer(answer)


class _Agent:
    """The other side of one read: its progress, its journal, its wish to go on."""

    def __init__(self, channel: Channel, order: Message) -> None:
        self._channel = channel
        self._part_bytes: int = order["part_bytes"]
        self._there = frozenset(order["finished"])
        self._answered = threading.Event()
        self._done = 0
        self._told_at = 0.0
        self.cancelled = threading.Event()

    def wait_for_end(self) -> None:
        """It says nothing more: where its end is closed, nothing is wanted any more."""
        try:
            self._channel.receive()
        except (EOFError, OSError):
            self.cancelled.set()
        self._answered.wait()
        self._channel.close()

    def on_bytes(self, done: int) -> None:
        before, self._done = self._done, done
        if done < before:  # it begins anew: what came before has come all the same
            self._say({"bytes": before})
            self._say({"bytes": done})
        now = time.monotonic()
        if now - self._told_at >= _TELL_SECONDS:
            self._told_at = now
            self._say({"bytes": done})

    def begin(self, part_bytes: int) -> tuple[int, frozenset[int]]:
        return self._part_bytes, self._there

    def finished(self, index: int) -> None:
        self._say({"bytes": self._done})
        self._say({"finished": index})

    def forget(self) -> None:
        self._there = frozenset()
        self._say({"forget": True})

    def answer(self, message: Message) -> None:
        self._say({"bytes": self._done})
        self._say(message)
        self._answered.set()

    def _say(self, message: Message) -> None:
        try:
            self._channel.send(message)
        except OSError:
            self.cancelled.set()


if __name__ == "__main__":
    main(int(sys.argv[1]))
