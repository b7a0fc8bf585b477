"""Real backends in a data folder of their own, and an independent look at who is left of them."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from reconciler.apply.backends import BackendExited, Backends, BackendView
from reconciler.backend.launch import Launch, Probe
from reconciler.observe.processes import Process, environment_value, read_processes
from reconciler.plan.desired import ModelSpec, ModelType
from reconciler.plan.ids import FilesDigest, Instance, ModelName, SpecHash

MARK = "XGEN_TEST_MARK"
"""In the environment of whatever a test starts: not the nonce, so that a fault there is seen."""
STAND_IN = Path(__file__).parents[1] / "stand_in_backend.py"
KEY = "key-of-the-backend"
SLEEP = ("sleep", "3600")
PORTS = range(20_000 + os.getpid() % 100 * 100, 20_000 + os.getpid() % 100 * 100 + 100)


SPEC = ModelSpec(source="gguf/org_model")


def instance(spec: str = "1:spec") -> Instance:
    return Instance(spec_hash=SpecHash(spec), files_digest=FilesDigest("digest"))


def launch(
    *flags: str,
    mark: str,
    port: int,
    name: str = "x",
    argv: tuple[str, ...] | None = None,
    kind: ModelType = ModelType.LLM,
    api_key: str | None = KEY,
) -> Launch:
    """The stand-in with these flags, or any command."""
    embeds = kind is ModelType.EMBEDDING
    own = (sys.executable, str(STAND_IN), "--port", str(port), "--name", name, *flags)
    env = {"PATH": os.environ["PATH"], MARK: mark}
    return Launch(
        backend="llama-server-cpu",
        argv=argv or own,
        env={**env, "LLAMA_API_KEY": api_key} if api_key else env,
        host="127.0.0.1",
        port=port,
        api_key=api_key,
        probe=Probe(
            health_path="/health",
            models_path="/v1/models",
            served_name=name,
            answer_path="/v1/embeddings" if embeds else "/v1/chat/completions",
            answer_body={"model": name, "input": "a"} if embeds else {"model": name},
            type=kind,
        ),
    )


@dataclass
class World:
    """`sessions`: of all leaders that this test started, beside the mark in the environment.

    `plays_init`: orphans of a dead agent come to the test process, as a subreaper, not to pid 1.
    `not_held`: why the data folder is not this agent's any more.
    """

    data_dir: Path
    mark: str
    backends: Backends = field(init=False)
    log_max_bytes: int = 50 * 1024 * 1024
    sessions: set[int] = field(default_factory=set)
    exits: list[BackendExited] = field(default_factory=list)
    woken: int = 0
    plays_init: bool = False
    not_held: str | None = None

    def __post_init__(self) -> None:
        self.backends = self.make_backends()

    def make_backends(self) -> Backends:
        return Backends(
            data_dir=self.data_dir,
            node="node-a",
            clock=time.monotonic,
            wake=self._wake,
            ports=PORTS,
            log_max_bytes=self.log_max_bytes,
            hold_folder=lambda: self.not_held,
        )

    def launch(
        self,
        *flags: str,
        argv: tuple[str, ...] | None = None,
        name: str = "x",
        port: int | None = None,
    ) -> Launch:
        port = port or self.backends.free_port()
        return launch(*flags, mark=self.mark, port=port, argv=argv, name=name)

    async def spawn(
        self, *flags: str, argv: tuple[str, ...] | None = None, name: str = "x"
    ) -> BackendView:
        view = await self.backends.spawn(
            model=ModelName(name),
            spec=SPEC,
            instance=instance(),
            gpus=(),
            launch=self.launch(*flags, argv=argv, name=name),
        )
        self.sessions.add(view.pid)
        return view

    async def spawn_loaded(self, *flags: str, children: int = 0) -> BackendView:
        """Loaded, and that many children have become what they are to be."""
        view = await self.spawn(*flags)
        await self.until(lambda: len(self.sleepers()) == children, "children are there")
        await self.until(lambda: self.view(view).loaded_at is not None, "it is loaded")
        return self.view(view)

    def view(self, view: BackendView) -> BackendView:
        return next(each for each in self.backends.live() if each.nonce == view.nonce)

    async def stop(
        self, view: BackendView, *, stop_seconds: float = 30.0, hurry: asyncio.Event | None = None
    ) -> None:
        await self.backends.stop(
            view.nonce, stop_seconds=stop_seconds, kill_seconds=30.0, hurry=hurry
        )

    async def exit_of(self, view: BackendView) -> BackendExited:
        def found() -> list[BackendExited]:
            self.exits.extend(self.backends.take_exits())
            return [each for each in self.exits if each.nonce == view.nonce]

        await self.until(lambda: bool(found()), f"exit of {view.pid} is told")
        (exited,) = found()
        return exited

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        """Poll, with a deadline that only a hang reaches."""
        deadline = time.monotonic() + 30
        while not holds():
            assert time.monotonic() < deadline, f"waited in vain: {what}"
            await asyncio.sleep(0.01)

    def processes(self) -> list[Process]:
        """Who lives of all that this test started."""
        return [each for each in self._all() if each.alive]

    def zombies(self) -> list[Process]:
        """Who is dead and was not reaped, but for what pid 1 would have reaped."""
        dead = [each for each in self._all() if not each.alive]
        if not self.plays_init:
            return dead
        for each in dead:
            os.waitid(os.P_PID, each.pid, os.WEXITED | os.WNOHANG)
        return []

    def sleepers(self) -> list[Process]:
        """Children of the stand-in that have become what they are to be."""
        return [each for each in self.processes() if each.name == "sleep" or each.state == "T"]

    def records(self) -> list[Path]:
        """Not one that is just being written: a thread does that, also beside an agent's end."""
        found = (self.data_dir / "spawns").iterdir()
        return sorted(path for path in found if path.suffix != ".partial")

    async def end(self, pid: int) -> None:
        """SIGKILL to one process of this test, until it is dead."""
        assert pid in {each.pid for each in self.processes()}
        os.kill(pid, signal.SIGKILL)
        await self.until(lambda: pid not in {each.pid for each in self.processes()}, "it is dead")

    def _all(self) -> list[Process]:
        return [
            each
            for each in read_processes().values()
            if each.session in self.sessions or environment_value(each.pid, MARK) == self.mark
        ]

    def _wake(self) -> None:
        self.woken += 1
