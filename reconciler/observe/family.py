"""Which processes belong to one spawn of ours (R9): a function of one look at /proc.

Ours is who carries the spawn's nonce in its environment, and is in a session of the spawn or comes
from one of its processes. A name or a command line proves nothing: titles are rewritten
(vllm PR#34816), and strangers run the same engines.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from reconciler.observe.processes import Process, ProcessTable

NonceOf = Callable[[int], str | None]
"""Reads a pid's nonce from /proc."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """How to know the processes of one spawn.

    `sessions`: the one that the spawn was given, and those that its processes opened later.
    `held`: our own child leads the first session and is not reaped yet, so no stranger can have
    its number. `reaper`: the process that inherits the spawn's orphans (we, for our children).
    `known`: pid to start ticks of processes that an earlier look has proven.
    """

    nonce: str
    sessions: tuple[int, ...]
    held: bool = False
    reaper: int | None = None
    known: Mapping[int, int]


def family(lineage: Lineage, table: ProcessTable, nonce_of: NonceOf) -> tuple[Process, ...]:
    """All processes of the spawn, zombies included, sorted by pid."""
    ours = _members_of_sessions(lineage, table, nonce_of)
    for pid, start_ticks in lineage.known.items():
        process = table.get(pid)
        if process and process.start_ticks == start_ticks:
            ours[pid] = process
    children = _children(table)
    parents = [*ours, *([lineage.reaper] if lineage.reaper is not None else [])]
    while parents:
        for process in children.get(parents.pop(), ()):
            if process.pid not in ours and nonce_of(process.pid) == lineage.nonce:
                ours[process.pid] = process
                parents.append(process.pid)
    return tuple(ours[pid] for pid in sorted(ours))


def strangers(
    lineage: Lineage, ours: Collection[Process], table: ProcessTable, nonce_of: NonceOf
) -> tuple[Process, ...]:
    """Who carries the nonce but cannot be shown to be ours: to be reported, never to be killed."""
    proven = {process.pid for process in ours}
    return tuple(
        process
        for pid, process in sorted(table.items())
        if pid not in proven and process.alive and nonce_of(pid) == lineage.nonce
    )


def _members_of_sessions(
    lineage: Lineage, table: ProcessTable, nonce_of: NonceOf
) -> dict[int, Process]:
    """A session is entered by birth only: one member with the nonce proves all of them.

    Members without it (a cleared environment, a rewritten title) are ours then, too.
    """
    ours: dict[int, Process] = {}
    for number, session in enumerate(lineage.sessions):
        members = [process for process in table.values() if process.session == session]
        held = lineage.held and number == 0
        if held or any(nonce_of(member.pid) == lineage.nonce for member in members):
            ours.update((member.pid, member) for member in members)
    return ours


def _children(table: ProcessTable) -> dict[int, list[Process]]:
    children: dict[int, list[Process]] = {}
    for process in table.values():
        children.setdefault(process.parent, []).append(process)
    return children
