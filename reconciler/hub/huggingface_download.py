"""One download from Hugging Face, in a child process, seen from the agent's side.

Its client has hung under the GIL, leaves threads behind, and reads its settings when it is
imported: it gets a process, which can be killed.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from reconciler.errors import Transient
from reconciler.hub.channel import Channel, Message
from reconciler.hub.huggingface_failures import failure
from reconciler.hub.huggingface_file import Listed, partial_name
from reconciler.hub.huggingface_site import site_of
from reconciler.hub.key_place import key_in
from reconciler.plan.repository import Repository

STALL_SECONDS = 600.0
"""Without any sign of life. The client's own limits are shorter, but not all of it has one."""
_LOOK_SECONDS = 0.2
_SECRET = ("MINIO_", "AWS_", "XGEN_")


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """`listed`: what the child needs to get and to judge it."""

    size_bytes: int
    listed: Listed = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A repository at a commit. `files`: by path."""

    commit: str
    licence: str | None
    files: Mapping[str, RemoteFile]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What to download, and where to. `folder` is the import's own, on this node.

    `files`: below it, what will be pushed. `cancelled` is asked several times a second.
    """

    repository: Repository
    folder: Path
    environment: Mapping[str, str] = field(repr=False)
    cancelled: Callable[[], bool] = field(repr=False)

    @property
    def files(self) -> Path:
        return self.folder / "files"

    @property
    def partial(self) -> Path:
        """What is half done, by `partial_name`."""
        return self.folder / "partial"

    @property
    def log(self) -> Path:
        return self.folder / "huggingface.log"

    @property
    def has_nothing(self) -> bool:
        """Whether there is no byte to go on with, and no line that says more of a failure."""
        below = (path for folder in (self.files, self.partial) for path in folder.rglob("*"))
        return not any(_size_of(path) for path in (self.log, *below) if path.is_file())

    def missing_bytes(self, files: Mapping[str, RemoteFile]) -> int:
        """What the disk must still take."""
        return sum(file.size_bytes - self._there(path, file) for path, file in files.items())

    def _there(self, path: str, file: RemoteFile) -> int:
        """Of a file. One that is whole and has another size is fetched anew: its room is free."""
        there = _size_of(self.files / path) or _size_of(
            self.partial / partial_name(path, file.listed)
        )
        return min(there, file.size_bytes)


def _size_of(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


@contextmanager
def download(wanted: Wanted, *, keep_open: int) -> Iterator["Download"]:
    """Begins with the listing; leaving the block ends the child, however it is left. Raises
    Rejected for a mirror that is none, Transient for a file that should hold a token and does not.

    `keep_open`: the descriptor of the folder's lock, which the child holds for as long as it lives.
    """
    site_of(wanted.environment)  # the child would read it, and show it
    _check_token_file(wanted)
    wanted.files.mkdir(exist_ok=True)
    ours, theirs = socket.socketpair()
    with contextlib.closing(ours), wanted.log.open("wb") as log:
        with contextlib.closing(theirs):
            child = _begun(wanted, log, (theirs.fileno(), keep_open))
        try:
            yield Download(wanted, child, Channel(ours))
        finally:
            _end(child)


def _begun(wanted: Wanted, log: IO[bytes], fds: tuple[int, int]) -> "subprocess.Popen[bytes]":
    try:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "reconciler.hub.huggingface_child", str(fds[0])],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=fds,
            env=_environment(wanted),
            start_new_session=True,
        )
    except OSError as exc:
        raise Transient(f"cannot import {wanted.repository}: {exc.strerror}") from exc


class Download:
    """A child that has begun. Every method raises Transient."""

    def __init__(self, wanted: Wanted, child: "subprocess.Popen[bytes]", channel: Channel) -> None:
        self._wanted = wanted
        self._child = child
        self._channel = channel

    def listing(self) -> Listing:
        repository = self._wanted.repository
        self._say(
            {
                "repository": repository.name,
                "revision": repository.revision,
                "folder": str(self._wanted.files),
                "partial": str(self._wanted.partial),
            }
        )
        told = self._next()["listing"]
        return Listing(
            commit=told["commit"],
            licence=told["licence"],
            files={
                path: RemoteFile(size_bytes=listed["size"], listed=listed)
                for path, listed in told["files"].items()
            },
        )

    def run(self, files: Mapping[str, RemoteFile], on_bytes: Callable[[int], None]) -> None:
        """Until all of them are whole and have the digests that were listed."""
        self._say({"download": {path: dict(file.listed) for path, file in files.items()}})
        while "done" not in (message := self._next()):
            on_bytes(int(message["bytes"]))

    def _say(self, message: Message) -> None:
        with contextlib.suppress(ConnectionError):  # it has said why, or its exit will
            self._channel.send(message)

    def _next(self) -> Message:
        deadline = time.monotonic() + STALL_SECONDS
        while True:
            if self._wanted.cancelled():
                raise Transient(f"cannot import {self._wanted.repository}: it is no longer wanted")
            try:
                message = self._channel.receive(_LOOK_SECONDS)
            except (EOFError, ConnectionError):
                raise self._failure("died", self._how_it_ended()) from None
            if message is not None:
                break
            if time.monotonic() > deadline:
                raise self._failure("stalled", f"{STALL_SECONDS / 60:.0f} min")
        if "failed" in message:
            raise self._failure(
                message["failed"],
                message["cause"],
                message["retry_after"],
                has_token=message["has_token"],
            )
        return message

    def _how_it_ended(self) -> str:
        """By a signal (out of memory, say) or an error that it could not tell."""
        code = self._child.wait()
        if code == -signal.SIGKILL:
            return "it was killed (SIGKILL; did memory run out?)"
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"{how} ({self._wanted.log} may say more)"

    def _failure(
        self,
        kind: str,
        cause: str,
        retry_after: float | None = None,
        *,
        has_token: bool = False,
    ) -> Transient:
        return failure(
            kind,
            cause,
            self._wanted.repository,
            environment=self._wanted.environment,
            has_token=has_token,
            retry_after_seconds=retry_after,
        )


def _check_token_file(wanted: Wanted) -> None:
    """The client goes on without a token where the file is missing or empty."""
    file = wanted.environment.get("HF_TOKEN_PATH")
    if not file or wanted.environment.get("HF_TOKEN", "").strip():
        return
    try:
        key_in("HF_TOKEN_PATH", file)
    except Transient as exc:
        raise Transient(f"cannot import {wanted.repository}: {exc}") from exc


def _environment(wanted: Wanted) -> dict[str, str]:
    """The agent's own, without the hub's keys; what the client keeps stays in the folder."""
    passed = {k: v for k, v in wanted.environment.items() if not k.startswith(_SECRET)}
    kept = wanted.folder / "client"
    return passed | {
        "HF_HUB_CACHE": str(kept / "hub"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_UPDATE_CHECK": "1",
        "PYTHONUNBUFFERED": "1",
    }


def _end(child: "subprocess.Popen[bytes]") -> None:
    """With all that it may have started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
