"""All that the steps act upon: one agent, its manifest, hub, disk and clock, and the strangers."""

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Lock

import httpx

from reconciler.observe.processes import Process, ticks_since_boot
from tests.chaos import census
from tests.chaos.census import Backend, Census
from tests.chaos.clock import ClockFile
from tests.chaos.decoys import Decoys
from tests.chaos.desired import Desired
from tests.chaos.disk import Disk, small_disk
from tests.chaos.engine import install
from tests.chaos.hub import Hub, hub
from tests.chaos.segments import Segment, remove
from tests.e2e.agent import Agent, Entry
from tests.ports import own_ports
from tests.supervised import agents_below
from tests.traces import remove_traces
from tests.waiting import wait_until

_UNSEEN_SECONDS = 5.0
"""An agent looks at its backends' processes every two seconds. One that loses its parent before the
look, when the agent is killed or stands still, cannot be proven to be ours by the next agent: it is
left alone (R9)."""
_UNSEEN_TICKS = int(_UNSEEN_SECONDS * os.sysconf("SC_CLK_TCK"))
SLACK_SECONDS = 60.0
"""For an agent that starts or ends; only a hang takes so long."""


@dataclass(kw_only=True)
class World:
    """`frozen`: pids that were sent SIGSTOP. `jumps`: the agent that runs has the clock that jumps.
    `leaves`: it leaves its backends at its end. `supervised`: its supervisor was started, and
    `crashes` counts the agents that died below that one; `crashed`: the last one, until there is
    another.

    `touched`: how often something of a model was changed. `served`: models that served, and nothing
    but edits has befallen since: what cannot be had costs them nothing (R5, R7).
    `gaps`: from when to when no agent saw what was born, in ticks after boot. `hasty`: nonces of
    spawns that were killed before an agent can have looked at them well.
    """

    root: Path
    agent: Agent
    desired: Desired
    hub: Hub
    disk: Disk
    clock: ClockFile
    decoys: Decoys = field(default_factory=Decoys)
    frozen: set[int] = field(default_factory=set)
    touched: dict[str, int] = field(default_factory=dict)
    served: set[str] = field(default_factory=set)
    jumps: bool = False
    leaves: bool = False
    supervised: bool = False
    crashes: int = 0
    crashed: int | None = None
    hasty: set[str] = field(default_factory=set)
    gaps: list[tuple[int, int]] = field(default_factory=list)
    _unwatched_since: int | None = None
    _thawed_at: int = 0
    starting: Lock = field(default_factory=Lock)

    @property
    def started_pid(self) -> int | None:
        """Of the agent, or of its supervisor."""
        process = self.agent.process
        return process.pid if process is not None and process.poll() is None else None

    @property
    def agent_pid(self) -> int | None:
        """Of an agent that was not ended; frozen or not."""
        if not self.supervised:
            return self.started_pid
        return next(iter(self.below), None)

    @property
    def below(self) -> tuple[int, ...]:
        """A supervisor's agent and its spare."""
        started = self.started_pid
        return agents_below(started) if self.supervised and started is not None else ()

    @property
    def pids(self) -> frozenset[int]:
        started = self.started_pid
        return frozenset((*self.below, *([started] if started is not None else [])))

    @property
    def answers(self) -> bool:
        return self.agent_pid is not None and self.agent_pid not in self.frozen

    @property
    def own_children(self) -> frozenset[int]:
        agent = self.agent.process
        return frozenset(
            (*self.decoys.pids(), self.hub.server.pid, *([agent.pid] if agent else []))
        )

    def census(self) -> Census:
        return census.look(str(self.root), without=self.pids)

    def harm(self, *models: str) -> None:
        """What happens now is no edit: a process may be lost that an edit would not have cost."""
        self.served.difference_update(models)
        self.touch(*models)

    def touch(self, *models: str) -> None:
        for model in models:
            self.touched[model] = self.touched.get(model, 0) + 1

    def touch_all(self) -> None:
        """What runs now may be started anew."""
        self.harm(*self.desired.wishes, *{each.model for each in self.census().backends})

    def start(self, rng: Random, *, leaves: bool | None = None) -> str:
        """A new agent, which does not have to answer yet."""
        self.jumps = rng.random() < 0.7
        self.leaves = rng.random() < 0.5 if leaves is None else leaves
        self.supervised, self.crashes, self.crashed = rng.random() < 0.4, 0, None
        module = ["reconciler", "run"]
        if self.jumps:
            module = ["tests.chaos.jumping_agent", str(self.clock.path)]
        self.agent.module = module
        with self.starting:
            self.agent.start(
                *("--on-exit", "leave" if self.leaves else "stop"),
                *(["--supervise"] if self.supervised else []),
            )
        self._watched_again()
        told = [f"an agent is started as pid {self.started_pid}"]
        told += ["below a supervisor"] * self.supervised
        told += ["with a clock that jumps"] * self.jumps
        told += ["which leaves its backends at its end"] * self.leaves
        return ", ".join(told)

    @property
    def is_up(self) -> bool:
        """Whether it answers this very moment, and so needs no disk to come up."""
        return self.view() is not None

    def comes_up(self) -> bool:
        """Whether it does, and does not end for want of disk."""
        return self.agent.comes_up(seconds=SLACK_SECONDS)

    def wait_up(self) -> None:
        self.agent.wait_up(seconds=SLACK_SECONDS)

    def look_for_successor(self) -> None:
        """Whether the supervisor has a new agent by now, which sees what is born."""
        if self.crashed is not None and self.agent_pid not in (None, self.crashed):
            self.crashed = None
            self._watched_again()

    def view(self) -> Entry | None:
        """What the agent says; None: it does not answer."""
        if not self.answers:
            return None
        with contextlib.suppress(httpx.HTTPError, OSError, ValueError, KeyError):
            return self.agent.self_view()
        return None

    def took_up(self) -> bool:
        """Whether the agent says that it has read the manifest as it counts, and keeps it."""
        view = self.view()
        if view is None:
            return False
        marks = {each["name"] for each in view["elsewhere"]}
        kept = next((each for each in view["conditions"] if each["type"] == "ManifestKept"), None)
        return marks == self.desired.marks and (kept is None or kept["status"] == "True")

    def wait_taken_up(self) -> None:
        wait_until(
            self.took_up,
            what=f"the manifest is taken up\n{self.desired.marks}\n{self.view()}",
            seconds=SLACK_SECONDS,
        )

    def faults(self) -> list[str]:
        """Unexpected errors that an agent has logged, with their tracebacks."""
        lines = self.agent.log.splitlines()
        entries = [json.loads(line) for line in lines if line.startswith("{")]
        return [entry["exception"] for entry in entries if "exception" in entry]

    def doubtful(self, process: Process) -> bool:
        """Whether no agent could have seen whose it is, before it had lost its parent."""
        return self._born_unseen(process.start_ticks)

    def unnoted(self, segment: Segment) -> bool:
        """Whether no agent could have seen whose it is, before that had died."""
        return segment.nonce in self.hasty or self._born_unseen(segment.born_ticks)

    def _born_unseen(self, ticks: int) -> bool:
        gaps = list(self.gaps)
        if self._unwatched_since is not None and (self.agent_pid is None or self.crashed):
            gaps.append((self._unwatched_since, ticks_since_boot()))
        return any(begin <= ticks <= end for begin, end in gaps)

    def unwatch(self) -> None:
        """From the moment on whose looks may not have come to anything, or not to the disk."""
        begin = ticks_since_boot() - _UNSEEN_TICKS
        if self.disk.full or self.disk.free_at > begin:
            begin = min(begin, self.disk.full_at - _UNSEEN_TICKS)
        stands_still = self.agent_pid in self.frozen or self._thawed_at > begin
        if self._unwatched_since is None or not stands_still:
            self._unwatched_since = begin

    def _watched_again(self) -> None:
        if self._unwatched_since is not None:
            self.gaps.append((self._unwatched_since, ticks_since_boot()))
            self._unwatched_since = None

    def freeze(self, pid: int) -> None:
        if pid == self.agent_pid:
            self.unwatch()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            self.frozen.add(pid)

    def thaw(self, *pids: int) -> None:
        if self.agent_pid in self.frozen:
            self._thawed_at = ticks_since_boot()
        for pid in pids or tuple(self.frozen):
            self.frozen.discard(pid)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def kill(self, backend: Backend, pid: int) -> None:
        """One process of a backend; its first one is what a model lives and dies with."""
        if pid == backend.pid:
            self.harm(backend.model)
            latest = ticks_since_boot() - _UNSEEN_TICKS
            blind = self.agent_pid in self.frozen or self._thawed_at > latest or self.disk.full
            if blind or backend.process.start_ticks > latest:
                self.hasty.add(backend.nonce)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@contextmanager
def world(root: Path) -> Iterator[World]:
    """Nothing of it is left at the end, whatever came of it."""
    with hub(root) as store, small_disk(root / "data") as disk:
        agent = Agent(
            root=root,
            args=["--hub", "s3://models", "--llama-server", str(install(root))],
            environment={"XGEN_ALLOW_ENGINE_ENV": "STAND_IN", **store.environment},
        )
        made = World(
            root=root,
            agent=agent,
            desired=Desired(agent.manifests),
            hub=store,
            disk=disk,
            clock=ClockFile(root / "clock"),
        )
        made.decoys.begin(own_ports())
        try:
            yield made
        finally:
            _clear(made)


def _clear(made: World) -> None:
    made.thaw()
    process = made.agent.process
    if process is not None and process.poll() is None:
        process.kill()
        process.wait()
    made.agent.client.close()
    for _ in range(100):
        left = made.census().everyone
        for each in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)
        census.reap(but=made.own_children)
        if not left:
            break
    remove(str(made.root))
    made.decoys.end()
    remove_traces(made.agent.data)
