"""A real agent in a process of its own, driven as its operator would drive it."""

import contextlib
import json
import os
import shlex
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.ports import own_ports
from tests.waiting import wait_for, wait_until

Entry = dict[str, Any]
REPOSITORY = Path(__file__).resolve().parents[2]
VARIABLES = "STAND_IN A_TOKEN KEEP LEVEL OTHER"
"""What the manifests of these tests set, and no engine knows."""
STAND_IN = REPOSITORY / "tests" / "stand_in_backend.py"


@dataclass(kw_only=True)
class Agent:
    """One agent and its folders. Everything it started is gone when the fixture ends."""

    root: Path
    node: str = "node-a"
    listen: str = "127.0.0.1:0"
    args: list[str] = field(default_factory=list)
    module: list[str] = field(default_factory=lambda: ["reconciler", "run"])
    environment: dict[str, str] = field(default_factory=dict)
    wrapper: list[str] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None
    client: httpx.Client = field(
        default_factory=lambda: httpx.Client(timeout=60, trust_env=False), repr=False
    )

    @property
    def manifests(self) -> Path:
        return self.root / "manifests"

    @property
    def hub(self) -> Path:
        return self.root / "hub"

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def scratch(self) -> Path:
        """TMPDIR of the agent and, inherited, of its backends: by it they are found in /proc."""
        path = self.root / "tmp"
        path.mkdir(exist_ok=True)
        return path

    @property
    def recent_log(self) -> str:
        """The end of the log, for the message of a failed test."""
        return self.log[-6000:]

    @property
    def log(self) -> str:
        return (self.root / "agent.log").read_text(encoding="utf-8")

    @property
    def url(self) -> str:
        return str(json.loads((self.data / "agent.json").read_text(encoding="utf-8"))["url"])

    def write(self, text: str, name: str = "models.yaml") -> None:
        """Save a manifest as an editor does: a new file, renamed over the old one."""
        self.manifests.mkdir(parents=True, exist_ok=True)
        fresh = self.manifests / f".{name}.swp"
        fresh.write_text(text, encoding="utf-8")
        fresh.rename(self.manifests / name)

    def model_file(self, prefix: str = "gguf/test_model", name: str = "model.gguf") -> Path:
        path = self.hub / prefix / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(MINIMAL_GGUF)
        return path

    def start(self, *args: str) -> None:
        (self.root / "data" / "agent.json").unlink(missing_ok=True)
        with (self.root / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(
                [*self.wrapper, sys.executable, "-m", *self.module, *self._arguments(args)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=REPOSITORY,
                env={
                    **os.environ,
                    "TMPDIR": str(self.scratch),
                    "XGEN_ALLOW_ENGINE_ENV": VARIABLES,
                    "XGEN_ON_EXIT": "stop",  # what is suspended, too
                    **self.environment,
                },
                start_new_session=True,
            )

    def _arguments(self, more: Sequence[str]) -> list[str]:
        return [
            *("--manifest", str(self.manifests)),
            *("--hub", str(self.hub)),
            *("--data-dir", str(self.data)),
            *("--node", self.node),
            *("--listen", self.listen),
            *("--ports", f"{own_ports()[0]}-{own_ports()[-1]}"),
            *("--poll-interval", "0.5"),
            *("--log-format", "json"),
            *self.args,
            *more,
        ]

    def wait_up(self, *, seconds: float = 30.0) -> None:
        assert self.comes_up(seconds=seconds), self.log

    def comes_up(self, *, seconds: float = 30.0) -> bool:
        """Whether it answers at last; else it has ended."""
        wait_until(
            lambda: self.exited is not None or self._answers(),
            what=f"agent up\n{self.recent_log}",
            seconds=seconds,
        )
        return self.exited is None

    @property
    def exited(self) -> int | None:
        return self.process.poll() if self.process else None

    def _answers(self) -> bool:
        try:
            return self.client.get(f"{self.url}/healthz").status_code == 200
        except (httpx.HTTPError, OSError, ValueError, KeyError):
            return False

    def self_view(self) -> Entry:
        answer = self.client.get(f"{self.url}/api/cluster/_self")
        answer.raise_for_status()
        view: Entry = answer.json()
        return view

    def model(self, name: str) -> Entry | None:
        return next((entry for entry in self.self_view()["models"] if entry["name"] == name), None)

    def condition(self, kind: str) -> Entry | None:
        conditions = self.self_view()["conditions"]
        return next((entry for entry in conditions if entry["type"] == kind), None)

    def wait_model(
        self, name: str, holds: Callable[[Entry], bool], *, seconds: float = 60.0
    ) -> Entry:
        def look() -> Entry | None:
            entry = self.model(name)
            return entry if entry is not None and holds(entry) else None

        try:
            return wait_for(look, what=f"model {name}", seconds=seconds)
        except AssertionError as exc:
            raise AssertionError(f"{exc}\nis: {self.model(name)}\nlog:\n{self.recent_log}") from exc

    def wait_state(self, name: str, state: str, *, seconds: float = 60.0) -> Entry:
        return self.wait_model(name, lambda entry: bool(entry["state"] == state), seconds=seconds)

    def wait_gone(self, name: str) -> None:
        wait_until(lambda: self.model(name) is None, what=f"{name} gone\n{self.recent_log}")

    def wait_condition(self, kind: str, status: str) -> Entry:
        def look() -> Entry | None:
            found = self.condition(kind)
            return found if found and found["status"] == status else None

        return wait_for(look, what=f"{kind} is {status}; log:\n{self.recent_log}")

    def post(self, path: str, body: Entry, **headers: str) -> httpx.Response:
        return self.client.post(f"{self.url}{path}", json=body, headers=headers)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the end. Returns the exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(60)

    def processes(self) -> list[int]:
        """Every living process that descends from an agent of this folder; not the agent itself."""
        own = self.process.pid if self.process else None
        return [pid for pid in _pids() if pid != own and _belongs(pid, str(self.scratch))]

    def end_stranger(self, pid: int) -> None:
        """Kill what a failed test left; it descends from our agent."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _pids() -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            yield int(entry.name)


def is_alive(pid: int) -> bool:
    """A zombie is dead: whoever inherited it may take its time to reap it."""
    try:
        stat_line = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat_line.rpartition(")")[2].split()[0] != "Z"


def _belongs(pid: int, marker: str) -> bool:
    """Whether a living process has this in its environment."""
    with contextlib.suppress(OSError):
        return is_alive(pid) and marker.encode() in Path(f"/proc/{pid}/environ").read_bytes()
    return False


def llama_server_stand_in(
    folder: Path, listing: str = "  (none)", *, version: str = "9999 (stand-in)"
) -> Path:
    """An executable with llama-server's flags that is the stand-in backend.

    `listing`: the devices that it lists, and so what it is built for. Where there is one, it gets
    this one's place as a package manager gives it.
    A model's `env: {STAND_IN: "--ready-after 1"}` says how it misbehaves. While there is a file
    `llama-server.busy`, it does not say its version.
    """
    path = folder / "llama-server"
    program = f"""#!{sys.executable}
import os, shlex, sys, time
args = sys.argv[1:]
if "--version" in args:
    while os.path.exists({str(path)!r} + ".busy"):
        time.sleep(0.02)
    print("version: {version}", file=sys.stderr)
    sys.exit(0)
if "--list-devices" in args:
    print("Available devices:", {listing!r}, sep="\\n")
    sys.exit(0)
if "--help" in args:
    sys.exit(0)
value = lambda flag: args[args.index(flag) + 1]
kinds = {{"--embedding": "embedding", "--reranking": "rerank"}}
kind = next((kinds[word] for word in args if word in kinds), "llm")
extra = shlex.split(os.environ.get("STAND_IN", ""))
os.execv(sys.executable, [sys.executable, {shlex.quote(str(STAND_IN))!r}, "--port", value("--port"),
    "--name", value("--alias"), "--type", kind, *extra])
"""
    fresh = folder / "llama-server.new"
    fresh.write_text(program, encoding="utf-8")
    fresh.chmod(fresh.stat().st_mode | stat.S_IXUSR)
    fresh.rename(path)
    return path


MINIMAL_GGUF = (
    b"GGUF"
    + (3).to_bytes(4, "little")
    + (0).to_bytes(8, "little")
    + (1).to_bytes(8, "little")
    + len(b"general.architecture").to_bytes(8, "little")
    + b"general.architecture"
    + (8).to_bytes(4, "little")
    + len(b"llama").to_bytes(8, "little")
    + b"llama"
)
"""A GGUF header that says `llama` and holds no tensors: enough for a stand-in."""
