"""An agent with a pulse: a timer in its event loop that notes how late it is.

`python -m tests.bench.pulsed_agent FOLDER --manifest …`, or with `--idle`: the pulse alone, in a
process that does nothing else, to tell the machine's own noise. Whoever connects to FOLDER/pulse
gets what was noted since the connection before.
"""

import argparse
import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
import uvloop

from reconciler import log
from reconciler.cli.agent_process import run_until_signalled
from reconciler.cli.garbage import collect_nothing_yet
from reconciler.manifest.policy import Permissions
from reconciler.node.agent import Up
from reconciler.node.shutdown import Shutdown
from reconciler.plan.ids import NodeName
from reconciler.settings import HubSettings, Settings
from reconciler.source.git_access import GitAccess
from reconciler.source.kubernetes_access import KubernetesAccess

SOCKET = "pulse"
_PERIOD_SECONDS = 0.002


class Noted(msgspec.Struct, kw_only=True):
    """Milliseconds. `stall`: the longest wait of the timer beyond its period; `busy`: the most CPU
    that the process took from one beat to the next, which is how long the wait would have been on a
    machine of its own; `cpu`: all that it took."""

    stall: float = 0.0
    busy: float = 0.0
    cpu: float = 0.0


@dataclass(slots=True)
class _Beat:
    at: float
    used: float


class Pulse:
    def __init__(self) -> None:
        self._noted = Noted()
        self._began = time.process_time()
        self._last = self._beat()

    async def run(self, socket: Path) -> None:
        server = await asyncio.start_unix_server(self._tell, path=socket)
        async with server:
            while True:
                await asyncio.sleep(_PERIOD_SECONDS)
                self._note()

    def _note(self) -> None:
        last, now = self._last, self._beat()
        late = (now.at - last.at - _PERIOD_SECONDS) * 1e3
        self._noted.stall = max(self._noted.stall, late)
        self._noted.busy = max(self._noted.busy, (now.used - last.used) * 1e3)
        self._last = now

    async def _tell(self, _: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        used = time.process_time()
        self._noted.cpu = (used - self._began) * 1e3
        writer.write(msgspec.json.encode(self._noted))
        self._noted, self._began = Noted(), used
        writer.close()
        await writer.wait_closed()

    def _beat(self) -> _Beat:
        return _Beat(time.monotonic(), time.process_time())


def main() -> None:
    options = _options()
    socket = options.folder / SOCKET
    if options.idle:
        uvloop.run(Pulse().run(socket))
        return
    collect_nothing_yet()

    async def beside(up: Up, shutdown: Shutdown) -> int:
        await Pulse().run(socket)
        return 0

    log.configure(form="json")
    raise SystemExit(run_until_signalled(_settings(options), companion=beside))


def _settings(options: argparse.Namespace) -> Settings:
    """What is not given here is as it is for operators."""
    first, _, last = options.ports.partition("-")
    return Settings(
        manifest=options.manifest,
        hub=HubSettings(location=options.hub),
        node=NodeName(options.node),
        listen_port=0,
        data_dir=options.data_dir,
        models_dir=options.data_dir / "models",
        llama_server=str(options.folder / "llama-server"),
        permissions=Permissions(file_roots=(options.folder,)),
        git=GitAccess(search_path=os.environ["PATH"]),
        git_interval=3600.0,
        kubernetes=KubernetesAccess(kubeconfig=options.kubeconfig),
        ports=range(int(first), int(last) + 1),
        environment=dict(os.environ),
    )


def _options() -> argparse.Namespace:
    """Of those of the command line that `tests.e2e.agent` gives."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--idle", action="store_true")
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--kubeconfig", type=Path)
    for name in ("manifest", "hub", "node", "ports"):
        parser.add_argument(f"--{name}")
    return parser.parse_known_args()[0]


if __name__ == "__main__":
    main()
