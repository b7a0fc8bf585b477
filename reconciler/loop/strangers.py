"""Processes on this node's GPUs that are no model's of this agent, by the newest survey."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from reconciler.backend.environment import NONCE_VARIABLE
from reconciler.cache.amounts import human
from reconciler.loop.gpu_memory import Families, GpuFigures
from reconciler.observe.processes import environment_value, read_process
from reconciler.plan.gpu_claims import named
from reconciler.plan.gpus import Gpu
from reconciler.plan.ids import Nonce


@dataclass(frozen=True, slots=True, kw_only=True)
class Stranger:
    """`gpu`: by its identity, `where` in words. `name`: of the process. `held_bytes`: None: the
    driver does not tell. `of_an_agent`: it runs a model for another agent."""

    pid: int
    name: str
    gpu: str
    where: str
    held_bytes: int | None
    of_an_agent: bool

    @property
    def what(self) -> str:
        who = f"{self.name}, a model of another agent" if self.of_an_agent else self.name
        size = "memory" if self.held_bytes is None else human(self.held_bytes)
        return f"pid {self.pid} ({who}) holds {size} on {self.where}, and is no model of this agent"


def strangers(
    figures: GpuFigures, families: Families, nonces: Collection[Nonce]
) -> tuple[Stranger, ...]:
    """`families`: the pids of our backends, `nonces` theirs: what one of them has just started
    carries it. None where a driver's pids are not of our namespace: nobody can say whose they are.
    For a thread: it reads /proc.
    """
    if not figures.own_pids:
        return ()
    ours = frozenset(pid for pids in families.values() for pid in pids)
    found = [each for device in figures.devices for each in _on(device, ours, nonces)]
    return tuple(sorted(found, key=lambda each: (each.gpu, each.pid)))


def _on(device: Gpu, ours: Collection[int], nonces: Collection[Nonce]) -> Iterator[Stranger]:
    for process in device.processes or ():
        if process.pid in ours or (found := read_process(process.pid)) is None:
            continue
        nonce = environment_value(process.pid, NONCE_VARIABLE)
        if nonce in nonces:
            continue
        yield Stranger(
            pid=process.pid,
            name=found.name,
            gpu=device.identity,
            where=named(device),
            held_bytes=process.memory_bytes,
            of_an_agent=nonce is not None,
        )
