"""All processes of one spawn, found anew at each look, and signals that reach no one else."""

import os
import signal
from collections.abc import Sequence

import msgspec

from reconciler.apply.cgroup import died_in, kill, members, recorded
from reconciler.apply.leader import Leader, send
from reconciler.apply.reaper import reap
from reconciler.apply.records import SpawnRecord
from reconciler.apply.shared_memory import left_by, remove_unused
from reconciler.backend.environment import NONCE_VARIABLE
from reconciler.observe.family import Lineage, family
from reconciler.observe.processes import (
    Process,
    ProcessTable,
    environment_value,
    read_processes,
)


def nonce_of(pid: int) -> str | None:
    return environment_value(pid, NONCE_VARIABLE)


class Kin:
    """The processes of one spawn. `leader` is None where it was dead when we came.

    What was once proven stays proven: a process that leaves the session, or loses its parent
    (double fork), is known by pid and start time from then on. Who is in its group is proven by
    that, with any environment.
    """

    def __init__(self, record: SpawnRecord, leader: Leader | None) -> None:
        self.record = record
        self.leader = leader
        self.born_here = leader is not None and leader.held
        self._found: tuple[Process, ...] = ()
        self._alive: tuple[Process, ...] = ()
        self._sessions: tuple[int, ...] = record.all_sessions
        self._group = recorded(record.nonce, record.cgroup)
        self._shared = dict(record.shared_memory)

    @property
    def alive(self) -> tuple[Process, ...]:
        """Whom the last look saw alive."""
        return self._alive

    def noted(self, *, loaded: bool, stopping: bool) -> SpawnRecord:
        """The record as it is to be by now."""
        return msgspec.structs.replace(
            self.record,
            sessions=self._sessions[1:],
            shared_memory=dict(self._shared),
            loaded=loaded,
            stopping=stopping,
        )

    def look(self, table: ProcessTable | None = None) -> tuple[Process, ...]:
        """Who lives. Zombies do not: those that are ours to reap are reaped, but for the leader.

        Reads /proc, so it belongs in a thread.
        """
        table = table if table is not None else read_processes()
        # Asked after the look, too: who is there then and was alive at the look was there already,
        # or is not proven by its start time.
        grouped = members(self._group) if self._group is not None else frozenset()
        # A zombie tells nothing by which it could be found again, once its parent has died.
        known = {process.pid: process.start_ticks for process in self._found}
        known |= {pid: table[pid].start_ticks for pid in grouped if pid in table}
        # Asked after the look: who leads the session now has led it all the while.
        held = self.leader is not None and self.leader.held
        found = family(
            Lineage(
                nonce=self.record.nonce,
                sessions=self._sessions,
                held=held,
                reaper=os.getpid() if self.born_here else None,
                known=known,
            ),
            table,
            nonce_of,
        )
        alive = tuple(member for member in found if member.alive)
        first = self._sessions[:1]
        later = {member.session for member in alive} - {*first, os.getsid(0)}
        self._found = found
        self._alive = alive
        self._sessions = (*first, *sorted(later))
        for member in found:
            if not member.alive and not (held and member.pid == self.record.pid):
                reap(member)
        for orphan in self._unseen_orphans(table):
            reap(orphan)
        return alive

    def _unseen_orphans(self, table: ProcessTable) -> list[Process]:
        """Zombies that came to us, and had died before any look: only their group tells whose."""
        group, known = self._group, {each.pid for each in self._found}
        if group is None:
            return []
        return [
            each
            for each in table.values()
            if not each.alive
            and each.parent == os.getpid()
            and each.pid not in known
            and each.pid != self.record.pid
            and died_in(group, each.pid)
        ]

    def send(self, processes: Sequence[Process], number: signal.Signals) -> None:
        """Signal these, each proven anew; the leader's own group at once, while that is safe."""
        leader = self.leader
        if leader is not None and leader.held:
            leader.send_to_group(number)
            processes = [process for process in processes if process.group != leader.pid]
        for process in processes:
            send(process, number)

    def kill(self) -> None:
        """SIGKILL to whom the last look saw, and to who has come to its group since."""
        self.send(self._alive, signal.SIGKILL)
        if self._group is not None:
            kill(self._group)

    def note_shared_memory(self, table: ProcessTable | None = None) -> None:
        """Remember what those have mapped who live now. Reads /proc."""
        self._shared.update(left_by(process.pid for process in self.look(table)))

    def remove_shared_memory(self) -> tuple[str, ...]:
        """What was noted and is left, once nobody lives; its names."""
        return remove_unused(self._shared)

    def reap_leader(self) -> None:
        """Once nobody lives: no signal goes to its group from then on."""
        if self.leader is not None:
            self.leader.reap()
