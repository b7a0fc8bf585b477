"""The hub of the chaos: a real S3 server behind a relay, which gets slow, deaf, or cuts."""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cli.command import xgen_model
from tests.e2e.agent import MINIMAL_GGUF
from tests.s3_server import KEYS, S3Server, serve_s3
from tests.tcp_relay import TcpRelay, relay_to

FAULTS = ("slow", "cuts", "hangs", "is away")
_SLOW_SECONDS = 0.1
"""For each 16 KiB."""
_LARGE_BYTES = 3 << 20
"""So large that another process than the agent fetches it."""


@dataclass(kw_only=True)
class Hub:
    """`digests`: of each prefix, those of all of its pushes, oldest first."""

    server: S3Server
    relay: TcpRelay
    digests: dict[str, list[str]]
    fault: str | None = None

    @property
    def environment(self) -> dict[str, str]:
        return {"MINIO_ENDPOINT": self.relay.endpoint, **KEYS}

    def begin(self, fault: str) -> None:
        self.fault = fault
        if fault == "slow":
            self.relay.on_bytes = lambda _passed: time.sleep(_SLOW_SECONDS)
        elif fault == "hangs":
            os.kill(self.server.pid, signal.SIGSTOP)
        else:
            self.relay.cut_after = 0 if fault == "is away" else 20_000

    def mend(self) -> None:
        self.fault = self.relay.cut_after = None
        self.relay.on_bytes = lambda _passed: None
        os.kill(self.server.pid, signal.SIGCONT)


@contextmanager
def hub(folder: Path) -> Iterator[Hub]:
    """Two prefixes with two revisions each, one of them large, and one of a single push."""
    (folder / "buckets" / "models").mkdir(parents=True)
    with serve_s3(folder / "buckets") as server, relay_to(server.port) as relay:
        made = Hub(server=server, relay=relay, digests={})
        for prefix, pushes, size in (
            ("gguf/chaos_small", 2, 1000),
            ("gguf/chaos_large", 2, _LARGE_BYTES),
            ("gguf/chaos_single", 1, 50_000),
        ):
            for number in range(pushes):
                _push(made, folder / f"{prefix.replace('/', '-')}-{number}", prefix, size)
        try:
            yield made
        finally:
            made.mend()


def _push(hub: Hub, folder: Path, prefix: str, size: int) -> None:
    folder.mkdir()
    (folder / "model.gguf").write_bytes(MINIMAL_GGUF + os.urandom(size))
    done = xgen_model(
        "hub", "push", folder, prefix, "--hub", "s3://models", "--output", "json",
        env=hub.environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    hub.digests.setdefault(prefix, []).append(json.loads(done.stdout)["digest"])
