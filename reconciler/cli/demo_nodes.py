"""The agents of a demo's cluster: each a process of its own, and none outlives the demo.

By the pipes of `supervisor.py` each learns that the demo has gone, however it ended, and then ends
in order. What the backends of a killed agent are, orphans, comes to the demo.
"""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from reconciler.apply.reaper import become_subreaper
from reconciler.cli import supervisor
from reconciler.errors import Rejected
from reconciler.observe.processes import read_processes
from reconciler.plan.ids import NodeName

END_SECONDS = 30.0
"""For the agents to end in order; past it they are killed."""

_NOT_PASSED_ON = ("XGEN_", "MINIO_", "AWS_", "NODE_NAME", "POD_NAME", "POD_IP")
"""Settings of the user's own agents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoNode:
    """`ports`: for its backends. `folder`: its data, its model files and its log."""

    name: NodeName
    host: str
    port: int
    ports: range
    folder: Path

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    @property
    def log(self) -> Path:
        return self.folder / "agent.log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """Of an agent that nobody told to end. `how`: in words."""

    node: DemoNode
    how: str


class DemoNodes:
    """Used as `async with`: after it no agent and no backend is left.

    `deaths`: of agents that were not told to end.
    """

    def __init__(self, nodes: Sequence[DemoNode], *, manifests: Path, hub: Path) -> None:
        self.nodes = tuple(nodes)
        self.deaths: asyncio.Queue[Death] = asyncio.Queue()
        self._words = (
            *("--manifest", str(manifests), "--hub", str(hub), "--on-exit", "stop"),
            *("--peers", ",".join(node.address for node in nodes), "--log-format", "console"),
        )
        self._running: dict[NodeName, _Agent] = {}
        self._pids: dict[NodeName, int] = {}
        self._ending = False

    async def __aenter__(self) -> Self:
        become_subreaper()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._ending = True
        agents = list(self._running.values())
        for agent in agents:
            agent.tell(signal.SIGTERM)
        with suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                for agent in agents:
                    await agent.ended.wait()
        for agent in agents:
            agent.kill()
        _kill_children(spared=())

    def hurry(self) -> None:
        """Who asks for the end once more does not want requests to be waited for."""
        for agent in self._running.values():
            agent.tell(signal.SIGTERM)

    def start(self, node: DemoNode, *, crash: str = "") -> int:
        """The pid of its agent. `crash`: how the one before it ended. Raises Rejected."""
        words = [
            *("run", "--node", node.name, "--listen", node.address),
            *("--ports", f"{node.ports.start}-{node.ports.stop - 1}"),
            *("--data-dir", str(node.folder), *self._words),
        ]
        try:
            node.folder.mkdir(parents=True, exist_ok=True)
            agent = _Agent(words, log=node.log, crash=crash)
        except OSError as exc:
            raise Rejected(f"cannot start node {node.name}: {exc}") from exc
        self._running[node.name], self._pids[node.name] = agent, agent.pid
        agent.watch(lambda: self._gone(node, agent))
        return agent.pid

    def pid(self, node: DemoNode) -> int:
        """Of its agent, or of the last one."""
        return self._pids[node.name]

    def kill(self, node: DemoNode) -> None:
        """What becomes of a node that loses its power: its agent dies, and all its backends."""
        self._running.pop(node.name).kill()
        _kill_children(spared=[agent.pid for agent in self._running.values()])

    def _gone(self, node: DemoNode, agent: "_Agent") -> None:
        if self._running.get(node.name) is agent and not self._ending:
            del self._running[node.name]
            self.deaths.put_nowait(Death(node=node, how=agent.how_it_ended))


class _Agent:
    """One process, in a session of its own: Ctrl-C reaches it through us."""

    def __init__(self, words: Sequence[str], *, log: Path, crash: str) -> None:
        ours, theirs = os.pipe(), os.pipe()
        self._heard, self._kept = ours[0], theirs[1]
        inherited = (theirs[0], ours[1])
        try:
            with log.open("ab") as stream:
                self._process = subprocess.Popen(
                    [sys.executable, *_program(), *words],
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=stream,
                    env=_environment() | {supervisor.VARIABLE: f"{theirs[0]},{ours[1]}"},
                    pass_fds=inherited,
                    start_new_session=True,
                )
            os.write(self._kept, f"{int(bool(crash))},{crash}\n".encode())
        except OSError:
            self._close()
            raise
        finally:
            for end in inherited:
                os.close(end)
        self.ended = asyncio.Event()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def how_it_ended(self) -> str:
        code = self._process.wait()
        return f"exit code {code}" if code >= 0 else f"killed by {signal.Signals(-code).name}"

    def watch(self, gone: Callable[[], None]) -> None:
        """Call `gone` once it has ended, but not after `kill`."""

        def heard() -> None:
            if not os.read(self._heard, 64):
                self._finish()
                gone()

        asyncio.get_running_loop().add_reader(self._heard, heard)

    def tell(self, number: signal.Signals) -> None:
        self._process.send_signal(number)  # none to one that has been waited for

    def kill(self) -> None:
        if not self.ended.is_set():
            self._process.kill()
            self._finish()

    def _finish(self) -> None:
        asyncio.get_running_loop().remove_reader(self._heard)
        self._process.wait()
        self._close()
        self.ended.set()

    def _close(self) -> None:
        os.close(self._heard)
        os.close(self._kept)


def _program() -> Sequence[str]:
    """What follows Python's own name on the command line, up to our command."""
    return sys.orig_argv[1 : len(sys.orig_argv) - len(sys.argv) + 1]


def _environment() -> dict[str, str]:
    return {k: v for k, v in os.environ.items() if not k.startswith(_NOT_PASSED_ON)}


def _kill_children(*, spared: Collection[int]) -> None:
    """And whoever comes to us by their deaths."""
    while children := [
        process.pid
        for process in read_processes().values()
        if process.parent == os.getpid() and process.pid not in spared
    ]:
        for pid in children:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
