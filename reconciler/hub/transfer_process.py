"""The agent's side of the process that fetches large objects."""

import contextlib
import dataclasses
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from reconciler.errors import Bug, Damaged, Transient
from reconciler.hub.channel import Channel, Message
from reconciler.hub.objects import Journal, ObjectRef
from reconciler.hub.parts import part_bytes_for
from reconciler.hub.s3_settings import S3Settings
from reconciler.masking import without_secrets

_LOOK_SECONDS = 0.1
_END_SECONDS = 1.0


@dataclasses.dataclass(slots=True)
class _Child:
    """`orders`: our end of its socket; it ends when this is closed. `users`: reads under way."""

    process: subprocess.Popen[bytes]
    orders: socket.socket
    users: int = 0


class TransferProcess:
    """Started by the first read that needs it, ended after the last one; thread-safe."""

    def __init__(self, settings: S3Settings, bytes_per_second: float | None) -> None:
        given = {"settings": dataclasses.asdict(settings), "rate": bytes_per_second}
        self._settings = json.dumps(given).encode()  # by a pipe: argv and environment can be seen
        self._lock = threading.Lock()
        self._child: _Child | None = None

    def read(
        self,
        stored: ObjectRef,
        fd: int,
        *,
        doing: str,
        on_bytes: Callable[[int], None],
        cancelled: Callable[[], bool],
        journal: Journal | None,
    ) -> None:
        """As S3Store.read. `doing`: "cannot fetch <key> from <store>"."""
        with self._borrowed(doing) as child, _channel_to(child, fd, doing) as channel:
            channel.send(_order(stored, journal))
            while (message := _next(channel, doing)) != {"done": stored.size_bytes}:
                match message:
                    case None:
                        pass
                    case {"bytes": done}:
                        on_bytes(done)
                    case {"finished": index} if journal is not None:
                        journal.finished(index)
                    case {"forget": _} if journal is not None:
                        journal.forget()
                    case {"transient": text, "retry_after_seconds": seconds}:
                        raise Transient(text, retry_after_seconds=seconds)
                    case {"damaged": text}:
                        raise Damaged(text)
                    case {"errno": number, "text": text}:
                        raise OSError(number, text)
                    case _:
                        raise Bug(f"{doing}: {message}")
                if cancelled():
                    raise Transient(f"{doing}: it is no longer wanted")
            on_bytes(stored.size_bytes)

    @contextmanager
    def _borrowed(self, doing: str) -> Iterator[_Child]:
        with self._lock:
            if self._child is None or self._child.process.poll() is not None:
                self._child = self._started(doing)
            child = self._child
            child.users += 1
        try:
            yield child
        finally:
            with self._lock:
                child.users -= 1
                if child.users == 0:
                    _end(child)
                    self._child = None if self._child is child else self._child

    def _started(self, doing: str) -> _Child:
        ours, its = socket.socketpair()
        argv = [sys.executable, "-P", "-m", "reconciler.hub.transfer_child", str(its.fileno())]
        try:
            with its:
                process = subprocess.Popen(
                    argv,
                    stdin=subprocess.PIPE,
                    pass_fds=[its.fileno()],
                    process_group=0,
                    env=without_secrets(os.environ),
                )
        except OSError as exc:
            ours.close()
            raise Transient(f"{doing}: its process cannot be started: {exc.strerror}") from exc
        assert process.stdin is not None
        with contextlib.suppress(OSError), process.stdin:  # it is gone: the first order shows it
            process.stdin.write(self._settings)
        return _Child(process, ours)


def _end(child: _Child) -> None:
    child.orders.close()
    try:
        child.process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        child.process.kill()
        child.process.wait()


@contextmanager
def _channel_to(child: _Child, fd: int, doing: str) -> Iterator[Channel]:
    """A channel for one read; at its end, the process has let go of the file."""
    ours, its = socket.socketpair()
    channel = Channel(ours)
    with contextlib.closing(channel):
        with its:
            try:
                socket.send_fds(child.orders, [b"R"], [its.fileno(), fd])
            except OSError as exc:
                raise Transient(f"{doing}: its process is gone: {exc.strerror}") from exc
        try:
            yield channel
        finally:
            with contextlib.suppress(EOFError, OSError):
                channel.end_sending()
                while channel.receive(_END_SECONDS) is not None:
                    pass


def _next(channel: Channel, doing: str) -> Message | None:
    try:
        return channel.receive(_LOOK_SECONDS)
    except (EOFError, OSError) as exc:
        raise Transient(f"{doing}: its process was killed") from exc


def _order(stored: ObjectRef, journal: Journal | None) -> Message:
    part_bytes = 0
    finished: list[int] = []
    wanted = part_bytes_for(stored.size_bytes)
    if journal is not None and stored.size_bytes > wanted:
        part_bytes, there = journal.begin(wanted)
        finished = sorted(there)
    return {
        "stored": {
            "path": "",
            "key": stored.key,
            "size_bytes": stored.size_bytes,
            "version": stored.version,
            "md5": stored.md5,
            "sha256": stored.sha256,
        },
        "part_bytes": part_bytes,
        "finished": finished,
    }
