"""An agent is killed while a model serves: how long until the next one serves that model again.

Beside it, in the same rounds, what any server in Python needs: one that imports what an agent
cannot do without, and one of aiohttp that answers a constant.
"""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench import wire
from tests.bench.peers import engine_script, free_port, python, running
from tests.bench.usage import cpu_seconds
from tests.e2e.agent import Agent, is_alive
from tests.e2e.manifests import manifest, model
from tests.supervised import agents_below
from tests.waiting import wait_until

_LIMIT_SECONDS = 60.0
_PAUSE_SECONDS = 0.002
"""Between two looks."""
_REST_SECONDS = 1.0
_QUESTION = wire.json_request()
_GOOD = b"HTTP/1.1 200"
_IMPORTS = "import aiohttp, msgspec, pydantic, starlette, structlog, uvicorn, uvloop"
_SERVER = """
import sys
from aiohttp import web
async def answer(request):
    return web.Response(text="ok")
app = web.Application()
app.router.add_post("/{path:.*}", answer)
web.run_app(app, host="127.0.0.1", port=int(sys.argv[1]), print=None)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """`spares`: of these rounds, the first ones with a supervisor, whose spare comes after 10 s."""

    rounds: int = 15
    spares: int = 5


FULL = Effort()
QUICK = Effort(rounds=1, spares=1)


@dataclass(slots=True, kw_only=True)
class TakeoverResult:
    """A value a round; seconds since the exec. `made`: the agent is imported, and has its data
    folder and its address; `listens`: its parts are made, and it takes connections; `serves`: the
    first 200 of the model. `cpu`: the agent's own until then. `pid_kept`: in each round. `spare`:
    from the kill of an agent that has one to the first 200 of its successor.

    `imports`: a process that imports the largest libraries, to its end. `server`: one of aiohttp
    that answers a constant, to its first answer.
    """

    effort: Effort
    made: list[float] = field(default_factory=list)
    listens: list[float] = field(default_factory=list)
    serves: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    spare: list[float] = field(default_factory=list)
    imports: list[float] = field(default_factory=list)
    server: list[float] = field(default_factory=list)
    pid_kept: bool = True


def measure(effort: Effort) -> TakeoverResult:
    result = TakeoverResult(effort=effort)
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        _agent(Path(folder)) as (
            agent,
            port,
        ),
    ):
        for number in range(effort.rounds):
            result.imports.append(_imports())
            result.server.append(_server())
            _round(agent, port, result)
            if number < effort.spares:
                _round_with_spare(result)
    return result


def _round(agent: Agent, port: int, result: TakeoverResult) -> None:
    _settle(agent)
    pid = agent.wait_state(wire.MODEL, "loaded")["pid"]
    assert agent.process is not None
    agent.process.kill()
    agent.process.wait()
    began = time.perf_counter()
    agent.start()
    result.made.append(_seconds(began, (agent.data / "agent.json").exists))
    result.listens.append(_seconds(began, lambda: _listens(port)))
    result.serves.append(_seconds(began, lambda: _answers(port)))
    result.cpu.append(cpu_seconds(agent.process.pid))
    result.pid_kept &= agent.wait_state(wire.MODEL, "loaded")["pid"] == pid


def _round_with_spare(result: TakeoverResult) -> None:
    """Of a supervisor of its own: a second crash within a minute has to wait."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as folder,
        _agent(Path(folder), "--supervise") as (agent, port),
    ):
        _settle(agent)
        pid = agent.wait_state(wire.MODEL, "loaded")["pid"]
        assert agent.process is not None
        supervisor = agent.process.pid
        wait_until(lambda: len(agents_below(supervisor)) == 2, what="a spare")
        first, spare = agents_below(supervisor)
        wait_until(lambda: _is_at_rest(spare), what="the spare is imported")
        began = time.perf_counter()
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: not is_alive(first), what="its death")
        result.spare.append(_seconds(began, lambda: _answers(port)))
        assert agents_below(supervisor)[0] == spare
        result.pid_kept &= agent.wait_state(wire.MODEL, "loaded")["pid"] == pid


def _is_at_rest(pid: int) -> bool:
    """It has used no processor for a while."""
    before = cpu_seconds(pid)
    time.sleep(_REST_SECONDS)
    return 0 < before == cpu_seconds(pid)


def _settle(agent: Agent) -> None:
    """Until nothing of a start is under way: engines are asked beside what serves."""
    wait_until(lambda: agent.self_view()["engines"] is not None, what="engines known")
    wait_until(lambda: bool(agent.self_view()["ready"]), what="ready")


def _imports() -> float:
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", _IMPORTS], check=True)
    return time.perf_counter() - began


def _server() -> float:
    port = free_port()
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", _SERVER, str(port)])
    try:
        return _seconds(began, lambda: _answers(port))
    finally:
        process.terminate()
        process.wait()


def _seconds(began: float, holds: Callable[[], bool]) -> float:
    """From `began` until it holds."""
    while not holds():
        if time.perf_counter() - began > _LIMIT_SECONDS:
            raise TimeoutError("a new agent does not serve what the last one left")
        time.sleep(_PAUSE_SECONDS)
    return time.perf_counter() - began


def _listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), _LIMIT_SECONDS) as sock:
        sock.sendall(_QUESTION)
        return sock.recv(len(_GOOD)) == _GOOD
    return False


@contextmanager
def _agent(root: Path, *flags: str) -> Iterator[tuple[Agent, int]]:
    """With one model, loaded; and its port, which its successors take again."""
    engine = engine_script(root / "llama-server", f'exec {python("tests.bench.upstream")} "$port"')
    port = free_port()
    listen = f"127.0.0.1:{port}"
    agent = Agent(root=root, args=["--llama-server", str(engine), "--listen", listen, *flags])
    agent.model_file()
    agent.write(manifest(model(wire.MODEL)))
    with running(agent):
        agent.wait_state(wire.MODEL, "loaded")
        yield agent, port
