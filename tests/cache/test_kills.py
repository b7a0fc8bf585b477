"""An agent that is killed in mid-download goes on where it was.

`XGEN_KILLS` moments, drawn at random; `make soak` takes more of them.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.cache.journal import read_claims
from tests.hub.fault_proxy import FaultProxy, Get, fault_proxy
from tests.s3_server import S3Server
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

KILLS = int(os.environ.get("XGEN_KILLS", "5"))
MIB = 1 << 20
CONTENT = os.urandom(64 * MIB)
PART_BYTES = 8 * MIB
WORKERS = 8
SLOWEST_BYTES_PER_SECOND = 32 * MIB


class Puller:
    """The program tests.cache.pulling, and the process that it has under way."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._orders, self._answers = process.stdin, process.stdout

    def start(self, models: Path) -> int:
        self._orders.write(f"{models}\n")
        self._orders.flush()
        return int(self._answers.readline())

    def wait(self) -> int:
        return int(self._answers.readline())


@contextmanager
def pulling(proxy: FaultProxy, bucket: str) -> Iterator[Puller]:
    argv = [sys.executable, "-m", "tests.cache.pulling", proxy.endpoint, bucket]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) as process:
        yield Puller(process)


class Throttle:
    """Lets the parts come at different speeds, and tells when so many bytes have passed."""

    def __init__(self, proxy: FaultProxy) -> None:
        self._proxy = proxy
        self.kill_at = 0
        self.is_due = threading.Event()
        proxy.pace = self.pace

    def pace(self, get: Get, count: int) -> None:
        if self._proxy.passed >= self.kill_at:
            self.is_due.set()
        share = 1 + get.offset // PART_BYTES
        time.sleep(count * share / (WORKERS * SLOWEST_BYTES_PER_SECOND))


@pytest.mark.timeout(60 + 20 * KILLS)
def test_a_kill_at_any_moment_costs_no_finished_part(
    tmp_path: Path, server: S3Server, bucket: str
) -> None:
    """gpustack#2582 (scenario 26), and huggingface_hub#1498 (29): the bytes are the object's."""
    server.put(bucket, "gguf/org_name/x.gguf", CONTENT)
    resumed = 0
    with fault_proxy(server.port) as proxy, pulling(proxy, bucket) as puller:
        throttle = Throttle(proxy)
        for number in range(KILLS):
            models = tmp_path / f"models-{number}"
            proxy.passed = 0
            throttle.kill_at = random.randrange(len(CONTENT))
            throttle.is_due.clear()
            pid = puller.start(models)
            assert throttle.is_due.wait(60), "nothing came"
            os.kill(pid, signal.SIGKILL)
            assert puller.wait() == -signal.SIGKILL
            finished = finished_bytes(models)
            resumed += finished

            wait_for_silence(proxy)
            before = proxy.passed
            puller.start(models)
            assert puller.wait() == 0
            again = proxy.passed - before
            (file,) = (models / "gguf/org_name").glob("*.gguf")
            assert file.read_bytes() == CONTENT
            assert again == len(CONTENT) - finished, f"killed at {throttle.kill_at}"
            assert proxy.passed <= len(CONTENT) + WORKERS * PART_BYTES
            assert [path.name for path in (models / ".partial").iterdir()] == [".lock"]
            file.resolve().unlink()
    assert resumed > 0


def finished_bytes(models: Path) -> int:
    """What the journal of the killed process says is there."""
    found = [read_claims(path) for path in (models / ".partial").glob("*.journal")]
    return sum(claims.done_bytes for claims in found if claims is not None)


def wait_for_silence(proxy: FaultProxy) -> None:
    """The process that fetched for the killed one has ended, too: its connections are closed."""
    wait_until(lambda: proxy.open_now == 0, what="the transfer process has ended")
