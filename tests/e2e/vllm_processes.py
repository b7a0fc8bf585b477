"""A real vLLM on the CPU, as a tree of processes with sockets and shared memory."""

import contextlib
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest

from tests.e2e.agent import REPOSITORY, Agent
from tests.waiting import wait_until

VLLM = REPOSITORY / ".venv-vllm" / "bin" / "vllm"
LOAD_SECONDS = 300.0
DEFAULTS = """\
  defaults:
    timeouts: {ready: 10m, drain: 1s, stop: 3s}
    extra_args: {vllm: {enforce_eager: true, max_num_seqs: 4, kv_cache_memory_bytes: 64M}}
"""


def family(leader: int) -> list[int]:
    """The session of a backend: its API server, EngineCore, worker, and Python's tracker."""
    return [int(each.name) for each in Path("/proc").iterdir() if _session(each) == leader]


def engine_core(members: Sequence[int]) -> int:
    return next(pid for pid in members if _title(pid).startswith("VLLM::EngineCor"))


def sockets(leader: int) -> Path:
    """The folder of a backend for its sockets, as it was told."""
    environment = Path(f"/proc/{leader}/environ").read_text(encoding="utf-8")
    return Path(environment.partition("VLLM_RPC_BASE_PATH=")[2].partition("\0")[0])


def flag(leader: int, name: str) -> str:
    """Its value on the command line."""
    argv = Path(f"/proc/{leader}/cmdline").read_text(encoding="utf-8").split("\0")
    return argv[argv.index(name) + 1]


def shared_memory() -> frozenset[int]:
    """What there is in /dev/shm, by inodes."""
    found = set()
    for each in Path("/dev/shm").iterdir():
        with contextlib.suppress(FileNotFoundError):  # somebody else's, which is just going
            found.add(each.stat().st_ino)
    return frozenset(found)


def assert_gone(
    agent: Agent, members: Sequence[int], segments: frozenset[int], port: int | None
) -> None:
    """No process, no port, and none of the shared memory that they had mapped."""
    wait_until(
        lambda: not set(members) & set(agent.processes()), what=f"{members} are gone", seconds=60
    )
    wait_until(
        lambda: segments.isdisjoint(shared_memory()),
        what="their shared memory is gone",
    )
    if port is not None:
        with pytest.raises(httpx.ConnectError):
            httpx.get(f"http://127.0.0.1:{port}/health", trust_env=False)


def _session(process: Path) -> int | None:
    try:
        words = (process / "stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if words[0] == "Z" else int(words[3])


def _title(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
