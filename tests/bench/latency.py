"""How soon a change becomes its first action, and how long the event loop is held up meanwhile.

Each change gives a model that loads another context size: its backend, which never gets ready, is
told to stop, and that is the first action.
"""

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from threading import Thread

import msgspec
import yaml

from tests.bench.peers import ending, engine_script
from tests.bench.pulsed_agent import SOCKET, Noted
from tests.e2e.agent import REPOSITORY, Agent
from tests.source.atomic_writer import ConfigMapVolume
from tests.source.git_repository import Repository
from tests.source.kubernetes_files import kubeconfig
from tests.source.kubernetes_server import Server, serving
from tests.waiting import wait_until

SETTLE_MS = 250.0
"""Between the two reads of a plain file that must agree."""
_OURS = "ours"
_QUIET_SECONDS = 1.5
"""Of an agent before each change: as long as the loop saves rest for."""
_AFTER_SECONDS = 0.4
"""Then what follows from the change is over, too."""
_PREFIXES = 100
_LIMIT_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How many changes of each agent, by the number of models in its manifest."""

    changes: dict[int, int] = field(default_factory=lambda: {100: 100, 1000: 20})


FULL = Effort()
QUICK = Effort(changes={10: 2})


@dataclass(slots=True, kw_only=True)
class Delays:
    """Of one agent, a value a change; milliseconds. `first`: until its first action, and for a
    plain file without the 250 ms; `stall`, `busy`, `cpu`: see `Noted`."""

    way: str
    models: int
    first: list[float] = field(default_factory=list)
    stall: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyResult:
    """`idle`: the stalls of a process that does nothing else, by the number of models that the
    agents beside it have. `parse`: CPU of a C library that reads the same text, milliseconds."""

    effort: Effort
    delays: tuple[Delays, ...]
    idle: dict[int, list[float]]
    parse: dict[int, list[float]]


def measure(effort: Effort) -> LatencyResult:
    delays: list[Delays] = []
    idle: dict[int, list[float]] = {}
    parse: dict[int, list[float]] = {}
    for models, changes in effort.changes.items():
        idle[models], parse[models] = [], []
        with tempfile.TemporaryDirectory(prefix="bench-") as folder, ExitStack() as stack:
            root = Path(folder)
            nobody = stack.enter_context(_idle(root / "idle"))
            agents = [stack.enter_context(_running(root / kind, kind, models)) for kind in _KINDS]
            for _ in range(changes):
                for subject in agents:
                    subject.rest()
                    nobody()
                    subject.change()
                    idle[models].append(nobody().stall)
                parse[models].append(_parse(_text(models, {_OURS: next(_numbers)}, full=False)))
            delays.extend(subject.delays for subject in agents)
    return LatencyResult(effort=effort, delays=tuple(delays), idle=idle, parse=parse)


_numbers = iter(range(1000, 1 << 30))
"""Context sizes, each of them new: a text that was read before costs less."""


class _Subject:
    """An agent, and the way its manifest takes to it."""

    def __init__(self, agent: Agent, kind: str, models: int, write: Callable[[str], float]) -> None:
        self.delays = Delays(way=_KINDS[kind], models=models)
        self._agent = agent
        self._full = kind == _FULL
        self._models = models
        self._write = write
        self._sizes: dict[str, int] = {}
        self._changed_at = 0.0

    def rest(self) -> None:
        time.sleep(max(0.0, self._changed_at + _QUIET_SECONDS - time.monotonic()))

    def change(self) -> None:
        """Give a model that loads another context size."""
        view = self._agent.self_view()
        loading = next(entry["name"] for entry in view["models"] if entry["pid"] is not None)
        self._sizes[loading] = next(_numbers)
        _pulse(self._agent.root)
        first = self._first_action(loading)
        time.sleep(_AFTER_SECONDS)
        self._note(first, _pulse(self._agent.root))
        self._changed_at = time.monotonic()

    def _note(self, first: float, noted: Noted) -> None:
        delays = self.delays
        delays.first.append(first - SETTLE_MS if delays.way.startswith("file") else first)
        delays.stall.append(noted.stall)
        delays.busy.append(noted.busy)
        delays.cpu.append(noted.cpu)

    def begin(self) -> None:
        """Until all that can be done for the first manifest is done."""
        self._write(self._text())
        self._agent.start()
        self._agent.wait_up()
        wait_until(
            self._is_started, what=f"a backend\n{self._agent.recent_log}", seconds=_LIMIT_SECONDS
        )
        if self._full:
            wait_until(self._all_are_here, what="all files", seconds=_LIMIT_SECONDS)
        self._changed_at = time.monotonic()

    def _is_started(self) -> bool:
        return any(entry["pid"] for entry in self._agent.self_view()["models"])

    def _all_are_here(self) -> bool:
        return all(entry["digest"] for entry in self._agent.self_view()["models"])

    def _text(self) -> str:
        return _text(self._models, self._sizes, full=self._full)

    def _first_action(self, model: str) -> float:
        """Milliseconds, by the agent's own account of when it began; then wait for the end."""
        url = f"{self._agent.url}/api/management/events"
        cursor = self._agent.client.get(url, params={"limit": 1}).json()
        since = f"{cursor['run']}:{cursor['next']}"
        params = {"follow": "true", "model": model, "since": since}
        first: float | None = None
        with self._agent.client.stream("GET", url, params=params) as answer:
            began = self._write(self._text())
            for line in answer.iter_lines():  # a comment comes every 15 s
                assert time.time() - began < _LIMIT_SECONDS, self._agent.recent_log
                if not line.startswith("data: "):
                    continue
                event = json.loads(line.removeprefix("data: "))
                if event["kind"] == "ActionBegun" and first is None:
                    first = (datetime.fromisoformat(event["time"]).timestamp() - began) * 1e3
                if event["kind"] == "BackendExited":
                    break
        assert first is not None, self._agent.recent_log
        return first


_SAVED, _SWAPPED, _PUSHED, _TOLD, _FULL = "saved", "swapped", "pushed", "told", "full"
_KINDS = {
    _SAVED: "file saved, less the 250 ms between its two reads",
    _SWAPPED: "`..data` swapped",
    _PUSHED: "pushed to git, from the hook's call on",
    _TOLD: "written to the Kubernetes API",
    _FULL: "`..data` swapped, every model is to run here",
}


@contextmanager
def _running(root: Path, kind: str, models: int) -> Iterator[_Subject]:
    root.mkdir()
    engine_script(root / "llama-server", "exec sleep 3600")
    agent = Agent(root=root, module=["tests.bench.pulsed_agent", str(root)])
    for number in range(min(models, _PREFIXES)):
        agent.model_file(f"gguf/test_{number}")
    with serving() as server, ending(agent):
        subject = _Subject(agent, kind, models, _writer(agent, kind, server))
        subject.begin()
        yield subject


def _writer(agent: Agent, kind: str, server: Server) -> Callable[[str], float]:
    """Writes a manifest, and returns the time from which on it counts."""
    if kind == _PUSHED:
        return _pusher(agent)
    if kind == _TOLD:
        return _teller(agent, server)
    volume = ConfigMapVolume(agent.manifests)

    def write(text: str) -> float:
        began = time.time()
        if kind == _SAVED:
            agent.write(text)
        else:
            volume.write({"models.yaml": text})
        return began

    return write


def _pusher(agent: Agent) -> Callable[[str], float]:
    repository = Repository(root=agent.root / "remote")
    agent.args += ["--manifest", repository.url("ref=main")]

    def push(text: str) -> float:
        repository.push({"models.yaml": text})
        began = time.time()
        if agent.process is not None:
            Thread(target=agent.post, args=("/api/management/reconcile", {})).start()
        return began

    return push


def _teller(agent: Agent, server: Server) -> Callable[[str], float]:
    config = str(kubeconfig(agent.root, server))
    agent.args += ["--manifest", "configmap://models/models", "--kubeconfig", config]

    def put(text: str) -> float:
        began = time.time()
        server.store.put({"models.yaml": text})
        return began

    return put


def _text(models: int, sizes: Mapping[str, int], *, full: bool) -> str:
    """A manifest as people write them. `sizes`: of contexts that were changed; `full`: all models
    are to run on this node, but no more than two load at a time."""
    entries = (
        _MODEL.format(
            name=name,
            number=number % _PREFIXES,
            node="node-a" if full or name == _OURS else "node-b",
            size=sizes.get(name, 512),
            priority=number % 5,
        )
        for number, name in enumerate((_OURS, *(f"model-{each}" for each in range(1, models))))
    )
    return _HEAD + "".join(entries)


_HEAD = """\
apiVersion: xgen.io/v1alpha1
kind: ModelManifest
metadata: {name: bench}
spec:
  models:
"""
_MODEL = """\
    - name: {name}
      aliases: [{name}-chat, {name}-latest]
      source: gguf/test_{number}
      type: llm
      backend: llama-server-cpu
      nodes: [{node}]
      extra_args: {{ctx_size: {size}, threads: 4, flash_attn: "on"}}
      env: {{OMP_NUM_THREADS: "4"}}
      timeouts: {{ready: 30m, stop: 10s}}
      priority: {priority}
"""


@contextmanager
def _idle(folder: Path) -> Iterator[Callable[[], Noted]]:
    """A process with a pulse and nothing else."""
    folder.mkdir()
    command = [sys.executable, "-m", "tests.bench.pulsed_agent", str(folder), "--idle"]
    process = subprocess.Popen(command, cwd=REPOSITORY)
    try:
        wait_until((folder / SOCKET).exists, what="a pulse")
        yield lambda: _pulse(folder)
    finally:
        process.terminate()
        process.wait()


def _pulse(folder: Path) -> Noted:
    """What the pulse noted since it was asked last."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(folder / SOCKET))
        with sock.makefile("rb") as answer:
            return msgspec.json.decode(answer.read(), type=Noted)


def _parse(text: str) -> float:
    """Milliseconds of CPU that the fastest YAML reader there is takes, with its C library."""
    began = time.process_time()
    yaml.load(text, Loader=yaml.CSafeLoader)
    return (time.process_time() - began) * 1e3
