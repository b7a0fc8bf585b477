"""Who lives of what an agent under test started, by /proc alone."""

import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from reconciler.backend.environment import NONCE_VARIABLE
from reconciler.observe.processes import Process, read_processes
from tests.chaos import engine
from tests.chaos.wishes import Wish

_OURS = ("stand_in_backend.py", "llama-server")


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """The first process of a spawn; `members`: the others that live."""

    process: Process
    model: str
    nonce: str
    arguments: tuple[str, ...]
    flags: str
    members: tuple[Process, ...]

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def identity(self) -> tuple[int, int]:
        return (self.process.pid, self.process.start_ticks)

    @property
    def instance(self) -> tuple[str, ...]:
        """All that it was asked for, but the port."""
        at = self.arguments.index("--port")
        return (*self.arguments[:at], *self.arguments[at + 2 :], self.flags)

    def is_of(self, wish: Wish) -> bool:
        """Whether it is what the manifest asks for; of an unpinned model any revision is."""
        path = _value(self.arguments, "--model")
        return (
            self.model == wish.name
            and f"/{wish.prefix}/" in path
            and (wish.digest is None or f"/{wish.digest}/" in path)
            and _value(self.arguments, "--ctx-size") == str(wish.context)
            and self.flags == wish.flags
        )

    def __str__(self) -> str:
        return f"{self.model} pid {self.pid} ({' '.join(self.instance)})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Census:
    """`others`: living processes of no backend that lives: an agent's helpers, and orphans."""

    backends: tuple[Backend, ...]
    others: tuple[Process, ...]

    @property
    def everyone(self) -> tuple[Process, ...]:
        own = [one for each in self.backends for one in (each.process, *each.members)]
        return (*own, *self.others)

    def of(self, model: str) -> list[Backend]:
        return [each for each in self.backends if each.model == model]

    def orphans(self) -> list[Process]:
        return [each for each in self.others if _environment(each.pid).get(NONCE_VARIABLE)]


def look(marker: str, *, without: Collection[int | None]) -> Census:
    """`marker`: begins the TMPDIR of the agent, which all inherit. `without`: the agent
    itself, its supervisor, and its spare."""
    found = {
        pid: (process, environment)
        for pid, process in read_processes().items()
        if process.alive
        and pid not in without
        and (environment := _environment(pid)).get("TMPDIR", "").startswith(marker)
    }
    leaders = {
        environment[NONCE_VARIABLE]: process
        for process, environment in found.values()
        if environment.get(NONCE_VARIABLE) and _leads(process, environment)
    }
    members: dict[str, list[Process]] = {nonce: [] for nonce in leaders}
    others: list[Process] = []
    for process, environment in found.values():
        nonce = environment.get(NONCE_VARIABLE, "")
        if nonce not in leaders:
            others.append(process)
        elif process != leaders[nonce]:
            members[nonce].append(process)
    return Census(
        backends=tuple(
            _backend(process, nonce, found[process.pid][1], members[nonce])
            for nonce, process in sorted(leaders.items(), key=lambda each: each[1].pid)
        ),
        others=tuple(others),
    )


def start_ticks(pid: int) -> int | None:
    """None: nobody lives there."""
    process = read_processes().get(pid)
    return process.start_ticks if process is not None and process.alive else None


def _backend(
    process: Process, nonce: str, environment: dict[str, str], members: list[Process]
) -> Backend:
    arguments = _arguments(process.pid, environment)
    return Backend(
        process=process,
        model=_value(arguments, "--alias"),
        nonce=nonce,
        arguments=arguments,
        flags=environment.get("STAND_IN", ""),
        members=tuple(sorted(members, key=lambda each: each.pid)),
    )


def _leads(process: Process, environment: dict[str, str]) -> bool:
    """A child with a session of its own is a `sleep`."""
    if process.pid != process.session:
        return False
    words = _command(process.pid)
    runs_ours = any(word.endswith(_OURS) for word in words[:2])
    return runs_ours and "--alias" in _arguments(process.pid, environment)


def _arguments(pid: int, environment: dict[str, str]) -> tuple[str, ...]:
    """Before the stand-in has taken its place, they are llama-server's own."""
    told = environment.get(engine.ARGUMENTS)
    return engine.split(told) if told is not None else _command(pid)


def _command(pid: int) -> tuple[str, ...]:
    try:
        return tuple(Path(f"/proc/{pid}/cmdline").read_text("utf-8", "replace").split("\0"))
    except OSError:
        return ()


def _environment(pid: int) -> dict[str, str]:
    try:
        content = Path(f"/proc/{pid}/environ").read_text("utf-8", "replace")
    except OSError:
        return {}
    return dict(entry.split("=", 1) for entry in content.split("\0") if "=" in entry)


def _value(arguments: tuple[str, ...], flag: str) -> str:
    return arguments[arguments.index(flag) + 1] if flag in arguments else ""


def reap(*, but: frozenset[int]) -> None:
    """Take the exit status of what was orphaned to us. `but`: children of our own."""
    for process in read_processes().values():
        if process.parent == os.getpid() and not process.alive and process.pid not in but:
            try:
                os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG)
            except ChildProcessError:
                continue
