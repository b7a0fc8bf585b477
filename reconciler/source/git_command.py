"""One git at a time, in a process group of its own that cannot outlive its time.

git starts helpers (ssh, git-remote-https, index-pack); all of them die with the group, and none
writes a file beyond the bound that the kernel holds them to. Blocking, for a thread; `close` may
come from any other.
"""

import contextlib
import os
import resource
import selectors
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from reconciler.errors import Transient

_CHUNK = 1 << 16
_MAX_MESSAGE_BYTES = 1 << 14
_FILTERLESS = "filtering not recognized"


class GitFailed(Transient):
    """git did not do it. `said`: what it printed of it."""

    def __init__(self, message: str, *, said: str = "") -> None:
        super().__init__(message)
        self.said = said


class GitTookTooLong(GitFailed):
    """It was killed, with all that it had started."""


class GitWroteTooMuch(GitFailed):
    """A file of it grew to the bound. `filterless`: the server sends all that a commit holds."""

    def __init__(self, message: str, *, said: str, filterless: bool) -> None:
        super().__init__(message, said=said)
        self.filterless = filterless


class GitCommand:
    """Runs git. `environment`: all that it gets. `timeout_seconds`: of each command.
    `max_file_bytes`: of each file that it writes."""

    def __init__(
        self, environment: Mapping[str, str], *, timeout_seconds: float, max_file_bytes: int
    ) -> None:
        self._environment = dict(environment)
        self._timeout_seconds = timeout_seconds
        self._max_file_bytes = max_file_bytes
        self._lock = threading.Lock()
        self._running: subprocess.Popen[bytes] | None = None
        self._closed = False

    def run(
        self,
        verb: str,
        *words: str,
        folder: Path,
        config: Sequence[str] = (),
        stdin: bytes = b"",
        max_bytes: int = 1 << 20,
    ) -> bytes:
        """What `git CONFIG VERB WORDS` prints in `folder`.

        Raises GitFailed; to print more than `max_bytes` is a failure, too.
        """
        with self._started(verb, [*config, verb, *words], folder, stdin) as process:
            out, err = self._read(process, verb, max_bytes)
            with self._lock:
                code = process.wait()  # it has ended
        if code != 0:
            said = err.decode(errors="replace")
            if _has_file_of(folder, self._max_file_bytes):  # git itself says less
                raise GitWroteTooMuch(
                    f"git {verb} wrote more than {self._max_file_bytes} bytes",
                    said=said,
                    filterless=_FILTERLESS in said,
                )
            raise GitFailed(f"git {verb} ended with exit code {code}", said=said)
        return out

    def close(self) -> None:
        """Kill what runs, and start nothing more."""
        with self._lock:
            self._closed = True
            if self._running is not None and self._running.returncode is None:
                _kill(self._running)

    @contextlib.contextmanager
    def _started(
        self, verb: str, words: Sequence[str], folder: Path, stdin: bytes
    ) -> Iterator[subprocess.Popen[bytes]]:
        with tempfile.TemporaryFile() as given:  # so that writing it can never block
            given.write(stdin)
            given.seek(0)
            process = self._start(verb, words, folder, given)
        try:
            yield process
        finally:
            with self._lock:
                # Before the leader is reaped: until then nobody else can get its number.
                if process.returncode is None:
                    _kill(process)
                    process.wait()
                self._running = None
            for stream in (process.stdout, process.stderr):
                if stream is not None:
                    stream.close()

    def _start(
        self, verb: str, words: Sequence[str], folder: Path, stdin: IO[bytes]
    ) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._closed:
                raise GitFailed(f"git {verb} was not started: the agent ends")
            try:
                self._running = subprocess.Popen(
                    ["git", *words],
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    cwd=folder,
                    env=self._environment,
                    start_new_session=True,
                )
            except FileNotFoundError as exc:
                raise GitFailed("there is no git on PATH; install git") from exc
            except OSError as exc:
                raise GitFailed(f"git cannot be started: {exc.strerror or exc}") from exc
            _bound(self._running.pid, self._max_file_bytes)
            return self._running

    def _read(
        self, process: subprocess.Popen[bytes], verb: str, max_bytes: int
    ) -> tuple[bytes, bytes]:
        """What it prints until it has ended. It is not reaped here, so that its number stays."""
        assert process.stdout is not None
        assert process.stderr is not None
        deadline = time.monotonic() + self._timeout_seconds
        out, err = bytearray(), bytearray()
        with selectors.DefaultSelector() as selector, _watched(process.pid) as end:
            selector.register(process.stdout, selectors.EVENT_READ, out)
            selector.register(process.stderr, selectors.EVENT_READ, err)
            selector.register(end, selectors.EVENT_READ)
            while selector.get_map():
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    raise GitTookTooLong(f"git {verb} took longer than {self._timeout_seconds:g} s")
                for key, _ in ready:
                    chunk = os.read(key.fd, _CHUNK) if key.data is not None else b""
                    if chunk:
                        key.data.extend(chunk)
                    else:
                        selector.unregister(key.fileobj)
                del err[:-_MAX_MESSAGE_BYTES]
                if len(out) > max_bytes:
                    raise GitFailed(f"git {verb} printed more than {max_bytes} bytes")
        return bytes(out), bytes(err)


@contextlib.contextmanager
def _watched(pid: int) -> Iterator[int]:
    """A descriptor that can be read once the process has ended."""
    pidfd = os.pidfd_open(pid)
    try:
        yield pidfd
    finally:
        os.close(pidfd)


def _bound(pid: int, max_file_bytes: int) -> None:
    """Of it and all that it starts. It has only begun: what it writes comes over the network."""
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (max_file_bytes, max_file_bytes))
        resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))


def _has_file_of(folder: Path, size_bytes: int) -> bool:
    """Or larger, anywhere below."""
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                if os.lstat(os.path.join(place, name)).st_size >= size_bytes:
                    return True
    return False


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
