"""Real agents: how fast a change becomes an action, and what they use when nothing happens."""

import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.peers import engine_script, running, serving_agent
from tests.bench.usage import cpu_seconds, resident_bytes
from tests.e2e.agent import MINIMAL_GGUF, Agent, is_alive
from tests.e2e.manifests import manifest, model
from tests.source.atomic_writer import ConfigMapVolume
from tests.source.git_repository import Repository
from tests.waiting import wait_for, wait_until

_SAVED = "file saved"
_SWAPPED = "..data swapped"
_PUSHED = "git pushed, and told to look,"
_WAYS = (_SAVED, _SWAPPED, _PUSHED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """Milliseconds from a new manifest's rename, or the end of its push, to the process of the
    backend that it asks for.

    `way`: how the manifest gets there.
    """

    way: str
    models: int
    delays: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """An agent that nobody asks anything. `cpu_seconds`: in a minute."""

    what: str
    cpu_seconds: float
    resident_bytes: int


def measure_agents(
    root: Path, counts: Sequence[int], *, changes: int, idle_seconds: float
) -> tuple[tuple[Changes, ...], tuple[Idle, ...]]:
    """All agents run side by side, so that noise on the machine falls on all of them."""
    with ExitStack() as stack:
        delays: dict[_Subject, list[float]] = {}
        for count in counts:
            for way in _WAYS:
                folder = root / f"{way.split()[0]}-{count}"
                delays[stack.enter_context(_subject(folder, way, count))] = []
        for _ in range(changes):
            for subject, measured in delays.items():
                measured.append(subject.change())
        changed = tuple(
            Changes(way=subject.way, models=subject.models, delays=tuple(measured))
            for subject, measured in delays.items()
        )
        serving, _ = stack.enter_context(serving_agent(root / "serving"))
        agents = {"1 model, loaded": serving.pid}
        for subject in delays:
            if subject.way == _SAVED:
                agents[f"{subject.models} models, none enabled"] = subject.pid
        return changed, _idle(agents, idle_seconds)


def _idle(agents: dict[str, int], seconds: float) -> tuple[Idle, ...]:
    before = {what: cpu_seconds(pid) for what, pid in agents.items()}
    time.sleep(seconds)
    return tuple(
        Idle(
            what=what,
            cpu_seconds=(cpu_seconds(pid) - before[what]) * 60 / seconds,
            resident_bytes=resident_bytes(pid),
        )
        for what, pid in agents.items()
    )


class _Subject:
    """An agent with many models for other nodes, and one for it that is switched on and off."""

    def __init__(self, agent: Agent, way: str, models: int, repository: Repository) -> None:
        self.way = way
        self._repository = repository
        self.models = models
        self._agent = agent
        self._mark = agent.root / "started"
        self._volume = ConfigMapVolume(agent.manifests)
        self._written = 0

    @property
    def pid(self) -> int:
        assert self._agent.process is not None
        return self._agent.process.pid

    def write(self, *, enabled: bool) -> float:
        """Returns when it was about to be there for all to see."""
        others = (model(f"m{number}", nodes="[node-b]") for number in range(self.models - 1))
        source = f"file://{self._agent.root}/model.gguf"
        ours = model("ours", source=source, enabled=str(enabled).lower())
        self._written += 1
        text = (
            f"# {self._written}: a text that was read before costs less\n{manifest(*others, ours)}"
        )
        began = time.time()
        if self.way == _SAVED:
            self._agent.write(text)
        elif self.way == _SWAPPED:
            self._volume.write({"models.yaml": text})
        else:
            self._repository.push({"models.yaml": text})
            began = time.time()
        return began

    def look(self) -> None:
        """Tell the agent to, as a host's webhook does."""
        if self.way == _PUSHED:
            url = f"{self._agent.url}/api/management/reconcile"
            self._agent.client.post(url).raise_for_status()

    def change(self) -> float:
        """Switch the model on, and off again. Returns how many milliseconds "on" took."""
        began = self.write(enabled=True)
        self.look()
        pid = wait_for(self._started, what=f"a backend\n{self._agent.recent_log}")
        delay = self._mark.stat().st_mtime - began
        self._mark.unlink()
        self.write(enabled=False)
        self.look()
        wait_until(lambda: not is_alive(pid), what=f"its end\n{self._agent.recent_log}")
        self._agent.wait_state("ours", "disabled")
        return delay * 1e3

    def _started(self) -> int | None:
        """The pid that the backend wrote when it began, once it did."""
        written = self._mark.read_text() if self._mark.exists() else ""
        return int(written) if written.endswith("\n") else None


@contextmanager
def _subject(root: Path, way: str, models: int) -> Iterator[_Subject]:
    """Its backend notes that it began, and then never gets ready."""
    root.mkdir()
    (root / "model.gguf").write_bytes(MINIMAL_GGUF)
    mark = shlex.quote(str(root / "started"))
    engine = engine_script(root / "llama-server", f"echo $$ > {mark}\nexec sleep 3600")
    here = ["--allow-file-root", str(root)]
    repository = Repository(root=root / "remote")
    if way == _PUSHED:
        here += ["--manifest", repository.url("ref=main"), "--git-interval", "3600"]
    agent = Agent(root=root, args=["--llama-server", str(engine), "--poll-interval", "5", *here])
    subject = _Subject(agent, way, models, repository)
    subject.write(enabled=False)
    with running(agent):
        wait_until(lambda: bool(agent.self_view()["ready"]), what="manifest read")
        yield subject
