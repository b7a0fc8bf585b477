"""What earlier agents of this data folder left: which records still have somebody alive."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import msgspec

from reconciler.apply.kin import Kin, nonce_of
from reconciler.apply.leader import Leader, hold
from reconciler.apply.records import SpawnRecord, Unreadable
from reconciler.observe.family import Lineage, strangers
from reconciler.observe.processes import (
    HOST_PID_NAMESPACE,
    Process,
    ProcessTable,
    boot_id,
    pid_namespace,
    read_processes,
)
from reconciler.plan.ids import Nonce

_BY_HAND = "left alone; end it by hand if it is an engine's"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A record of which nothing lives, and nobody could be meant. `why`: as a clause. `unseen`: it
    ended by itself, or by somebody's hand, while no agent was there to see it. `copy`: a record of
    another folder's."""

    record: SpawnRecord
    why: str
    unseen: bool = False
    copy: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """`alive`: spawns with living processes. `unreadable`: of whom nothing can be said.
    `problems`: what is doubtful, for operators; nothing of it is ever killed."""

    alive: tuple[Kin, ...]
    ended: tuple[Ended, ...]
    doubtful: tuple[SpawnRecord, ...]
    unreadable: frozenset[Nonce]
    problems: tuple[str, ...]

    @property
    def open(self) -> frozenset[Nonce]:
        """Whose records stay."""
        alive = (kin.record.nonce for kin in self.alive)
        doubtful = (record.nonce for record in self.doubtful)
        return frozenset((*alive, *doubtful, *self.unreadable))


def find_leftovers(
    records: Sequence[SpawnRecord],
    folder: str | None,
    path_of: Callable[[Nonce], Path],
    unreadable: Mapping[Nonce, Unreadable] = MappingProxyType({}),
) -> Findings:
    """Compare records with /proc. Blocks for a look at every process.

    `folder`: the identity of the one that they are in. `path_of`: where the record of a spawn is.
    """
    boot, namespace = boot_id(), pid_namespace() or "unknown"
    table = read_processes()
    nonces = _nonces(table)
    alive: list[Kin] = []
    ended: list[Ended] = []
    doubtful: list[SpawnRecord] = []
    problems = [_of_unreadable(nonce, why, table, nonces) for nonce, why in unreadable.items()]
    for record in records:
        doubts: list[str] = []
        kin = None
        copy = False  # what ended with its boot or container, nobody serves by
        if record.boot_id == boot and record.pid_namespace == namespace:
            kin = _kin(record, table, nonces)
            kin.look(table)
            copy = record.is_copy_in(folder)
            path = path_of(record.nonce)
            doubts = [*_doubts(kin, path, table, nonces), *(_of_copy(kin, path) if copy else ())]
        elif record.boot_id == boot:
            doubts = _foreign_doubts(record, path_of(record.nonce), table)
        problems.extend(doubts)
        if kin and copy and kin.leader is not None:
            kin.leader.close()
        if kin and kin.alive and not copy:
            alive.append(kin)
        elif doubts:
            doubtful.append(record)
        elif copy:
            ended.append(_ended_copy(record))
        else:
            ended.append(_ended(record, same_boot=record.boot_id == boot, seen=kin is not None))
    return Findings(
        alive=tuple(alive),
        ended=tuple(ended),
        doubtful=tuple(doubtful),
        unreadable=frozenset(unreadable),
        problems=tuple(problems),
    )


def _ended(record: SpawnRecord, *, same_boot: bool, seen: bool) -> Ended:
    """`seen`: we would see it, if it lived."""
    if not same_boot:
        return Ended(record=record, why=f"it was started before the last boot, on {record.node}")
    if not seen:
        return Ended(record=record, why="it ended with the container that it ran in")
    if record.pid is None:
        return Ended(record=record, why="its agent died before it came up")
    if record.stopping:
        return Ended(record=record, why="its agent had begun to stop it")
    return Ended(record=record, why="how, nobody has seen", unseen=True)


def _ended_copy(record: SpawnRecord) -> Ended:
    """Its traces are of the other folder's spawn, whose agent removes them."""
    bare = msgspec.structs.replace(record, scratch=(), cgroup=None, shared_memory={})
    return Ended(record=bare, why="another data folder's agent started it", copy=True)


def _nonces(table: ProcessTable) -> Mapping[int, str]:
    found = ((process.pid, nonce_of(process.pid)) for process in table.values() if process.alive)
    return {pid: nonce for pid, nonce in found if nonce is not None}


def _kin(record: SpawnRecord, table: ProcessTable, nonces: Mapping[int, str]) -> Kin:
    if record.pid is None:
        record = _completed(record, table, nonces)
    process = table.get(record.pid) if record.pid is not None else None
    leader = None
    if process and process.alive and _is_leader(process, record, nonces):
        pidfd = hold(process)
        leader = Leader(pid=process.pid, pidfd=pidfd, child=False) if pidfd is not None else None
    return Kin(record, leader)


def _is_leader(process: Process, record: SpawnRecord, nonces: Mapping[int, str]) -> bool:
    return (
        process.start_ticks == record.start_ticks
        and process.session == record.session
        and nonces.get(process.pid) == record.nonce
    )


def _completed(record: SpawnRecord, table: ProcessTable, nonces: Mapping[int, str]) -> SpawnRecord:
    """The agent died between the record and its completion: the nonce tells the leader.

    It leads a session of its own and is not older than the record.
    """
    for pid, process in sorted(table.items()):
        leads = process.session == pid and process.start_ticks >= record.written_ticks
        if leads and nonces.get(pid) == record.nonce:
            return msgspec.structs.replace(
                record, pid=pid, session=pid, start_ticks=process.start_ticks
            )
    return record


def _foreign_doubts(record: SpawnRecord, path: Path, table: ProcessTable) -> list[str]:
    """A container's pid namespace ends with its first process, and takes all others along; so a
    record of one that nobody is in is of a container that is gone. The host's never ends."""
    seen = any(pid_namespace(pid) == record.pid_namespace for pid in table)
    if record.pid_namespace != HOST_PID_NAMESPACE and not seen:
        return []
    who = f", as pid {record.pid} there" if record.pid is not None else ""
    return [
        f"cannot tell whether {record.model} ({path}) still runs: it was started in another pid "
        f"namespace, {record.pid_namespace}{who}; left alone; look there, and delete its record "
        "once it is gone"
    ]


def _doubts(kin: Kin, path: Path, table: ProcessTable, nonces: Mapping[int, str]) -> list[str]:
    record = kin.record
    lineage = Lineage(nonce=record.nonce, sessions=(), known={})
    doubts = [
        f"process {process} carries the nonce of {record.model} ({path}), but is not of its "
        f"session; {_BY_HAND}"
        for process in strangers(lineage, kin.alive, table, nonces.get)
    ]
    process = table.get(record.pid) if record.pid is not None else None
    if process and process.alive and process not in kin.alive and _same(process, record):
        doubts.append(
            f"process {process} has the pid and the start time of {record.model} ({path}), but "
            f"its environment does not hold the nonce; {_BY_HAND}"
        )
    return doubts


def _of_copy(kin: Kin, path: Path) -> list[str]:
    """Whoever holds the other folder may live, and serve by these."""
    record = kin.record
    return [
        f"process {process} is of {record.model} ({path}), which another data folder's "
        "agent started: this folder is a copy; left alone, for that agent, or for you to end"
        for process in kin.alive
    ]


def _of_unreadable(
    nonce: Nonce, record: Unreadable, table: ProcessTable, nonces: Mapping[int, str]
) -> str:
    carriers = [str(table[pid]) for pid, carried in sorted(nonces.items()) if carried == nonce]
    cure = f"{record.cure}, or " if record.cure else ""
    if not carriers:
        return f"{record.why}; no process is seen that carries its nonce; {cure}delete it"
    listed = ", ".join(carriers)
    many = len(carriers) > 1
    who = f"processes {listed} carry" if many else f"process {listed} carries"
    whom = "them" if many else "it"
    return (
        f"{record.why}; {who} its nonce; left alone; {cure}end {whom} by hand and delete the record"
    )


def _same(process: Process, record: SpawnRecord) -> bool:
    return process.start_ticks == record.start_ticks
