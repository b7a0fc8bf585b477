"""The servers that are compared, each in a process of its own that ends with its context."""

import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench import wire
from tests.e2e.agent import REPOSITORY, Agent
from tests.e2e.manifests import manifest, model
from tests.waiting import wait_until

_END_SECONDS = 30


class CannotStart(Exception):
    """A peer does not run here. The message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One server. `name` is a key of the results; `is_proxy`: it passes requests on."""

    name: str
    pid: int
    port: int
    is_proxy: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """Who runs. `absent`: peers that are missing, and why."""

    upstream_port: int
    peers: tuple[Peer, ...]
    absent: dict[str, str]

    def turn(self, number: int) -> tuple[Peer, ...]:
        """The peers in the order of a round: each begins with another one."""
        first = number % len(self.peers)
        return (*self.peers[first:], *self.peers[:first])


@contextmanager
def field_of_peers() -> Iterator[Field]:
    """The agent with its one backend, and every peer in front of that same backend; all fresh."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder, ExitStack() as stack:
        root = Path(folder)
        agent, upstream = stack.enter_context(serving_agent(root / "agent"))
        peers = [
            agent,
            stack.enter_context(_simple_server("uvicorn", root)),
            stack.enter_context(_simple_server("connection", root)),
            stack.enter_context(_simple_server("aiohttp", root, str(upstream))),
        ]
        absent = {}
        for name, start in (("nginx", _nginx), ("vllm-router", _vllm_router)):
            try:
                peers.append(stack.enter_context(start(root, upstream)))
            except CannotStart as exc:
                absent[name] = str(exc)
        yield Field(upstream_port=upstream, peers=tuple(peers), absent=absent)


@contextmanager
def running(agent: Agent) -> Iterator[Agent]:
    """Start the agent, and end it with all that it started."""
    with ending(agent):
        agent.start()
        agent.wait_up()
        yield agent


@contextmanager
def ending(agent: Agent) -> Iterator[None]:
    """End the agent with all that it started."""
    try:
        yield
    finally:
        if agent.process is not None:
            _end(agent.process)
        for pid in agent.processes():
            agent.end_stranger(pid)


@contextmanager
def serving_agent(root: Path) -> Iterator[tuple[Peer, int]]:
    """An agent whose one model is loaded, and the port of its backend."""
    root.mkdir()
    engine = engine_script(root / "llama-server", f'exec {python("tests.bench.upstream")} "$port"')
    agent = Agent(root=root, args=["--llama-server", str(engine), "--poll-interval", "5"])
    agent.model_file()
    agent.write(manifest(model(wire.MODEL)))
    with running(agent):
        port = agent.wait_state(wire.MODEL, "loaded")["port"]
        assert agent.process is not None
        own_port = int(agent.url.rpartition(":")[2])
        yield Peer(name="agent", pid=agent.process.pid, port=own_port), port


def engine_script(path: Path, command: str) -> Path:
    """An executable with llama-server's face that runs `command` with its `$port`."""
    path.write_text(
        "#!/bin/sh\n"
        'case "$*" in\n'
        '  *--version*) echo "version: 9999 (bench)" >&2; exit 0 ;;\n'
        "  *--help*) exit 0 ;;\n"
        "esac\n"
        'while [ "$1" != --port ]; do shift; done\n'
        f"port=$2\n{command}\n"
    )
    path.chmod(0o755)
    return path


def python(module: str) -> str:
    """A shell's words for that module of ours."""
    return (
        f"env PYTHONPATH={shlex.quote(str(REPOSITORY))} {shlex.quote(sys.executable)} -m {module}"
    )


@contextmanager
def _simple_server(kind: str, root: Path, *args: str) -> Iterator[Peer]:
    with (root / f"{kind}.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.simple_servers", kind, *args],
            stdout=subprocess.PIPE,
            stderr=log,
            cwd=REPOSITORY,
        )
    assert process.stdout is not None
    with process.stdout:
        try:
            port = int(process.stdout.readline())
            yield Peer(name=kind, pid=process.pid, port=port, is_proxy=bool(args))
        finally:
            _end(process)


@contextmanager
def _nginx(root: Path, upstream: int) -> Iterator[Peer]:
    program = shutil.which("nginx", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if program is None:
        raise CannotStart("it is not on PATH (Debian: apt-get install nginx)")
    folder = root / "nginx"
    folder.mkdir()
    port = free_port()
    config = folder / "nginx.conf"
    config.write_text(_NGINX.format(folder=folder, port=port, upstream=upstream))
    command = [program, "-e", "stderr", "-p", str(folder), "-c", str(config)]
    with _program("nginx", command, port, root) as peer:
        yield peer


@contextmanager
def _vllm_router(root: Path, upstream: int) -> Iterator[Peer]:
    """One process, as nginx. It resends nothing, and has no breaker, as our other peers."""
    program = shutil.which("vllm-router", path=Path(sys.executable).parent)
    if program is None:
        raise CannotStart("it is not installed (pip install 'xgen-model[bench]')")
    port = free_port()
    command = [program, "--host", "127.0.0.1", "--port", str(port)]
    command += ["--worker-urls", f"http://127.0.0.1:{upstream}", "--policy", "round_robin"]
    command += ["--disable-retries", "--disable-circuit-breaker", "--log-level", "error"]
    command += ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port())]
    with _program("vllm-router", command, port, root) as peer:
        yield peer


@contextmanager
def _program(name: str, command: list[str], port: int, root: Path) -> Iterator[Peer]:
    with (root / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        wait_until(lambda: process.poll() is not None or _listens(port), what=f"{name} listens")
        if process.poll() is not None:
            raise CannotStart(f"it ended at once, with code {process.returncode}")
        yield Peer(name=name, pid=process.pid, port=port)
    finally:
        _end(process)


_NGINX = """
daemon off;
master_process off;
pid {folder}/pid;
error_log stderr warn;
events {{ worker_connections 16384; }}
http {{
  access_log off;
  client_max_body_size 64m;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  keepalive_requests 1000000000;
  upstream backend {{ server 127.0.0.1:{upstream}; keepalive 128; keepalive_requests 1000000000; }}
  server {{
    listen 127.0.0.1:{port};
    location / {{
      proxy_pass http://backend;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
    }}
  }}
}}
"""
"""One process, so that its CPU time is the proxy's; kept connections on both sides, no log."""


def free_port() -> int:
    """One that nobody has now."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port: int = sock.getsockname()[1]
        return port


def _listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
