"""What the loop costs: a tick that finds nothing to do, a change, and an idle agent.

Ticks are the real loop's, in this process; changes and idle time are those of real agents.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path

import uvloop

from reconciler import log
from tests.bench.changes import Changes, Idle, measure_agents
from tests.bench.git_stalls import Stalls, measure_stalls
from tests.bench.ticks import Ticks, measure_ticks


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is measured. `idle_seconds`: some of the loop's own 15 s."""

    tick_models: tuple[int, ...] = (10, 100, 1000)
    ticks: int = 30
    change_models: tuple[int, ...] = (100, 1000)
    changes: int = 5
    pushes: int = 20
    idle_seconds: float = 45.0


FULL = Effort()
QUICK = Effort(
    tick_models=(10,), ticks=3, change_models=(10,), changes=1, pushes=1, idle_seconds=1.0
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopResult:
    effort: Effort
    ticks: tuple[Ticks, ...]
    changes: tuple[Changes, ...]
    stalls: Stalls
    idle: tuple[Idle, ...]


def measure(effort: Effort) -> LoopResult:
    log.configure(level="error")
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        root = Path(folder)
        ticks = uvloop.run(measure_ticks(root, effort.tick_models, ticks=effort.ticks))
        stalls = uvloop.run(measure_stalls(root / "git", pushes=effort.pushes))
        changes, idle = measure_agents(
            root,
            effort.change_models,
            changes=effort.changes,
            idle_seconds=effort.idle_seconds,
        )
    return LoopResult(effort=effort, ticks=ticks, changes=changes, stalls=stalls, idle=idle)
