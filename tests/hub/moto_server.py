"""A second S3 server to be judged by: moto's, which keeps its objects in memory."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.s3_server import server_of

_LISTENING = re.compile(r"Running on http://127\.0\.0\.1:(\d+)")


@contextmanager
def serve_moto() -> Iterator[str]:
    """Runs until the end of the block, on a port that the kernel chose. Gives its endpoint."""
    script = Path(sys.executable).with_name("moto_server")
    argv = [str(script), "-H", "127.0.0.1", "-p", "0"]
    with server_of(argv, _LISTENING) as (port, _):
        yield f"http://127.0.0.1:{port}"
