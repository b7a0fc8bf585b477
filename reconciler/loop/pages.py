"""What stands in the books of one model."""

from collections import Counter, deque
from dataclasses import dataclass, field, replace

from reconciler.plan.ids import FilesDigest, Instance, Nonce, SpecHash
from reconciler.plan.observed import Failure
from reconciler.plan.revert import LastGood
from reconciler.status import RestartCause

RECENT = 5
"""Failures of a model that operators can look up."""


Key = tuple[SpecHash, FilesDigest | None, bool]
"""What failed: a spec over files, or, with True, their download."""


@dataclass(slots=True)
class Page:
    """One model's page. `failures`: the newest last. `stuck`: the stop that failed. `loaded`:
    instances that were loaded here at least once. `resuming`: as in `ObservedModel`. `beside`:
    processes that are to take the place of one that lives: no restart of the model until they do.
    `passed`: what was loaded since it failed.
    """

    failures: dict[Key, Failure] = field(default_factory=dict)
    stuck: Failure | None = None
    last_good: LastGood | None = None
    recent: deque[Failure] = field(default_factory=lambda: deque(maxlen=RECENT))
    cause: RestartCause = RestartCause.CHANGED
    restarts: Counter[RestartCause] = field(default_factory=Counter)
    beside: set[Nonce] = field(default_factory=set)
    last_lines: tuple[str, ...] = ()
    starts: int = 0
    resuming: bool = False
    loaded: dict[Instance, None] = field(default_factory=dict)
    passed: set[Key] = field(default_factory=set)

    def copy(self) -> "Page":
        return replace(
            self,
            failures=dict(self.failures),
            recent=deque(self.recent, maxlen=RECENT),
            restarts=Counter(self.restarts),
            beside=set(self.beside),
            loaded=dict(self.loaded),
            passed=set(self.passed),
        )
