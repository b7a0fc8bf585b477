"""One download from Hugging Face, in a child process, seen from the agent's side.

Its client has hung under the GIL, leaves threads behind, and reads its settings when it is
imported: it gets a process, which can be killed.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from reconciler.errors import Transient
from reconciler.hub.huggingface_failures import failure
from reconciler.plan.repository import Repository

STALL_SECONDS = 600.0
"""Without any sign of life. The client's own limits are shorter, but not all of it has one."""
_LOOK_SECONDS = 0.2
_SECRET = ("MINIO_", "AWS_", "XGEN_")
_MAX_LINE_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """`listed`: what the child needs to get and to judge it."""

    size_bytes: int
    listed: Mapping[str, Any] = field(repr=False)


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
    def log(self) -> Path:
        return self.folder / "huggingface.log"


@contextmanager
def download(wanted: Wanted, *, keep_open: int) -> Iterator["Download"]:
    """Begins with the listing; leaving the block ends the child, however it is left.

    `keep_open`: the descriptor of the folder's lock, which the child holds for as long as it lives.
    """
    wanted.files.mkdir(exist_ok=True)
    reads, writes = os.pipe()
    with wanted.log.open("wb") as log, open(reads, "rb", buffering=0) as messages:
        try:
            child = subprocess.Popen(
                [sys.executable, "-P", "-m", "reconciler.hub.huggingface_child", str(writes)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=(writes, keep_open),
                env=_environment(wanted),
                start_new_session=True,
            )
        except OSError as exc:
            raise Transient(f"cannot import {wanted.repository}: {exc.strerror}") from exc
        finally:
            os.close(writes)
        try:
            yield Download(wanted, child, messages)
        finally:
            _end(child)


class Download:
    """A child that has begun. Every method raises Transient."""

    def __init__(
        self, wanted: Wanted, child: "subprocess.Popen[bytes]", messages: IO[bytes]
    ) -> None:
        self._wanted = wanted
        self._child = child
        self._messages = messages
        self._unread = b""

    def listing(self) -> Listing:
        repository = self._wanted.repository
        self._say(
            {
                "repository": repository.name,
                "revision": repository.revision,
                "folder": str(self._wanted.files),
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

    def _say(self, message: dict[str, Any]) -> None:
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has said why, or its exit will
            self._child.stdin.write(json.dumps(message).encode() + b"\n")
            self._child.stdin.flush()

    def _next(self) -> dict[str, Any]:
        line = self._next_line()
        if line is None:
            raise self._failure("died", self._how_it_ended())
        message: dict[str, Any] = json.loads(line)
        if "failed" in message:
            raise self._failure(message["failed"], message["cause"], message["retry_after"])
        return message

    def _next_line(self) -> bytes | None:
        """None: the child has ended."""
        deadline = time.monotonic() + STALL_SECONDS
        ready = select.poll()
        ready.register(self._messages, select.POLLIN | select.POLLHUP)
        while b"\n" not in self._unread:
            if self._wanted.cancelled():
                raise Transient(f"cannot import {self._wanted.repository}: it is no longer wanted")
            if ready.poll(_LOOK_SECONDS * 1000):
                piece = self._messages.read(1 << 16)
                if not piece or len(self._unread) > _MAX_LINE_BYTES:
                    return None
                self._unread += piece
            elif time.monotonic() > deadline:
                raise self._failure("stalled", f"{STALL_SECONDS / 60:.0f} min")
        line, _, self._unread = self._unread.partition(b"\n")
        return line

    def _how_it_ended(self) -> str:
        """By a signal (out of memory, say) or an error that it could not tell."""
        code = self._child.wait()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"{how}; {self._wanted.log} may say more"

    def _failure(self, kind: str, cause: str, retry_after: float | None = None) -> Transient:
        return failure(
            kind,
            cause,
            self._wanted.repository,
            environment=self._wanted.environment,
            retry_after_seconds=retry_after,
        )


def _environment(wanted: Wanted) -> dict[str, str]:
    """The agent's own, without the hub's keys; what the client keeps stays in the folder."""
    passed = {k: v for k, v in wanted.environment.items() if not k.startswith(_SECRET)}
    kept = wanted.folder / "client"
    return passed | {
        "HF_HUB_CACHE": str(kept / "hub"),
        "HF_XET_CACHE": str(kept / "xet"),
        "HF_HUB_DISABLE_TELEMETRY": "1",
        "HF_HUB_DISABLE_UPDATE_CHECK": "1",
        "PYTHONUNBUFFERED": "1",
    }


def _end(child: "subprocess.Popen[bytes]") -> None:
    """With all that it may have started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        child.stdin.close()
    child.wait()
