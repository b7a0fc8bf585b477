"""A second S3 server to be judged by: moto's, which keeps its objects in memory."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LISTENING = re.compile(r"Running on http://127\.0\.0\.1:(\d+)")


@contextmanager
def serve_moto() -> Iterator[str]:
    """Runs until the end of the block, on a port that the kernel chose. Gives its endpoint."""
    script = Path(sys.executable).with_name("moto_server")
    argv = [str(script), "-H", "127.0.0.1", "-p", "0"]
    with subprocess.Popen(argv, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said: list[str] = []
        for line in process.stderr:
            said.append(line)
            if (match := _LISTENING.search(line)) is not None:
                break
        else:
            raise RuntimeError("moto did not start: " + "".join(said))
        drain = threading.Thread(target=process.stderr.read)  # a full pipe would stop it
        drain.start()
        try:
            yield f"http://127.0.0.1:{match[1]}"
        finally:
            process.terminate()
            drain.join()
