"""What an agent must not leave: while it runs, of what ended; after its end, of anything."""

import os
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from reconciler.apply.kin import nonce_of
from reconciler.observe.processes import read_processes
from tests.chaos.segments import segments
from tests.chaos.world import World
from tests.ports import own_ports

_LISTENS = "0A"
_CONNECTED = "connected socket"
_ESTABLISHED = "01"
_SLACK = 4
_KEPT_OPEN = 24
"""Connections to backends, clients and the hub that may be used again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holdings:
    """What one agent holds: open files by kind, and threads."""

    files: Counter[str]
    threads: int


def holdings(pid: int) -> Holdings:
    states = _socket_states()
    files: Counter[str] = Counter()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = os.readlink(entry)
        except OSError:
            continue
        files[_kind(target, states)] += 1
    return Holdings(files=files, threads=len(list(Path(f"/proc/{pid}/task").iterdir())))


def more_than(old: Holdings, fresh: Holdings) -> list[str]:
    """What an agent that saw it all holds beyond one that was just started on the same."""
    found = [
        f"{count} files of kind {kind}, of which a fresh agent has {fresh.files[kind]}"
        for kind, count in old.files.items()
        if count > fresh.files[kind] + (_KEPT_OPEN if kind == _CONNECTED else _SLACK)
    ]
    if old.threads > fresh.threads + _SLACK:
        found.append(f"{old.threads} threads, of which a fresh agent has {fresh.threads}")
    return found


def _kind(target: str, states: Mapping[str, str]) -> str:
    if target.startswith("socket:"):
        state = states.get(target[len("socket:[") : -1])
        return _CONNECTED if state == _ESTABLISHED else f"socket in state {state}"
    return target.split(":[")[0] if ":[" in target else Path(target).name


def _socket_states() -> Mapping[str, str]:
    """Of every TCP socket, by its inode."""
    lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    return {fields[9]: fields[3] for fields in map(str.split, lines)}


def while_it_runs(world: World) -> list[str]:
    """Once nothing is under way."""
    seen = world.census()
    nonces = {each.nonce for each in seen.backends}
    found = [f"record {name}" for name in _records(world) - nonces - _spoken_for(world)]
    found += [f"no record of {nonce}" for nonce in nonces - _records(world)]
    found += [f"zombie {each}" for each in _zombies(world.pids)]
    found += [f"helper {each}" for each in seen.others if not world.doubtful(each)]
    ports = {int(each.arguments[each.arguments.index("--port") + 1]) for each in seen.backends}
    found += [f"port {port} is held" for port in _listening() - ports - {own_ports()[3]}]
    found += _segments(world, nonces)
    return found + _partial_files(world)


def after_its_end(world: World) -> list[str]:
    seen = world.census()
    found = [f"process {each}" for each in seen.everyone if not world.doubtful(each)]
    found += [f"record {name}" for name in _records(world) - _spoken_for(world)]
    found += [f"port {port} is held" for port in _listening() - {own_ports()[3]}]
    found += _segments(world, set())
    of_doubtful = {f"xgen-{nonce}" for nonce in _spoken_for(world)}
    scratch = sorted(world.agent.scratch.iterdir())
    found += [f"temporary file {path}" for path in scratch if path.name not in of_doubtful]
    if (world.agent.data / "agent.json").exists():
        found.append("agent.json")
    return found + _partial_files(world)


def _records(world: World) -> set[str]:
    return {path.name.removesuffix(".json") for path in (world.agent.data / "spawns").iterdir()}


def _spoken_for(world: World) -> set[str]:
    """Records that stay as long as the processes do that they might speak of."""
    doctored = {name.removesuffix(".json") for name in world.decoys.doctored}
    doubtful = {each for each in world.census().others if world.doubtful(each)}
    return doctored | world.decoys.nonces | {nonce_of(each.pid) or "" for each in doubtful}


def _segments(world: World, living: Collection[str]) -> list[str]:
    """Shared memory of who is gone."""
    told_of = _spoken_for(world)
    return [
        f"shared memory {each}"
        for each in segments(str(world.root))
        if each.nonce not in living and each.nonce not in told_of and not world.unnoted(each)
    ]


def _zombies(parents: Collection[int]) -> list[str]:
    return [
        str(process)
        for process in read_processes().values()
        if process.parent in parents and not process.alive
    ]


def _listening() -> set[int]:
    """Those of our ports that somebody listens on."""
    lines = Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]
    fields = [line.split() for line in lines]
    ports = {int(each[1].split(":")[1], 16) for each in fields if each[3] == _LISTENS}
    return ports & set(own_ports())


def _partial_files(world: World) -> list[str]:
    data = world.agent.data
    found = [path for path in (data / "models" / ".partial").glob("*") if path.name != ".lock"]
    found += [*(data / "spawns").glob("*.partial"), *(data / "last-good").glob("*.partial")]
    return [f"half of a file: {path}" for path in found]
