"""From what is wanted and what is seen to a plan: the loop's at each tick, a rehearsal's on copies.

It begins nothing and tells nobody; what it learns is its own.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from reconciler.loop.barring import barred
from reconciler.loop.books import Books
from reconciler.loop.fallbacks import Fallbacks
from reconciler.loop.gpus import Families, GpuLedger, Gpus
from reconciler.loop.memory import Memory
from reconciler.loop.observation import Looks, Seen, observed
from reconciler.loop.observer import Observer
from reconciler.loop.reverts import Reverts
from reconciler.loop.surging import Surges
from reconciler.plan.actions import Plan
from reconciler.plan.desired import Desired
from reconciler.plan.maintenance import Maintenance
from reconciler.plan.observed import Observed
from reconciler.plan.planner import plan

SETTLING_ROUNDS = 1000
"""Far more than any number of models and GPUs has needed: a fault of ours must not hold up the
node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """What each model gets, and what it is: its source, its fallback, or what was last good.
    `at_rest` False: it would be something else at the next look; a fault of ours."""

    gpus: Gpus
    looks: Looks
    at_rest: bool


def _at_any_time(desired: Desired | None, now: float) -> None:
    del desired, now


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliberation:
    """Its parts are kept by one owner, who calls one method at a time. `families`: of what lives,
    as of now. `maintenance`: of the windows at a moment; None: what serves may be stopped."""

    observer: Observer
    fallbacks: Fallbacks
    reverts: Reverts
    books: Books
    gpus: GpuLedger
    surges: Surges
    families: Callable[[], Families]
    max_parallel_loads: int
    maintenance: Callable[[Desired | None, float], Maintenance | None] = _at_any_time

    def copy(self) -> "Deliberation":
        """Of all but the observer, for somebody else, who learns for itself."""
        return replace(
            self,
            fallbacks=self.fallbacks.copy(),
            reverts=self.reverts.copy(),
            books=self.books.copy(),
            gpus=self.gpus.copy(),
            surges=self.surges.copy(),
        )

    async def settle(self, wanted: Desired | None, seen: Seen, now: float) -> Settled:
        gpus, looks, again = await self._choose(wanted, seen, now)
        rounds = 1
        while again and rounds < SETTLING_ROUNDS:
            gpus, looks, again = await self._choose(wanted, seen, now)
            rounds += 1
        return Settled(gpus=gpus, looks=looks, at_rest=not again)

    async def look(self, gpus: Gpus, seen: Seen) -> Looks:
        models = gpus.desired.models if gpus.desired else ()
        return await asyncio.to_thread(self.observer.look, models, seen.sound, gpus.claims)

    def plan(
        self, gpus: Gpus, looks: Looks, seen: Seen, memory: Memory | None, now: float
    ) -> tuple[Observed, Plan]:
        there = observed(
            seen,
            looks,
            self.books,
            memory,
            misplaced=gpus.misplaced,
            max_parallel_loads=self.max_parallel_loads,
            engines_known=self.observer.engines_known,
            maintenance=self.maintenance(gpus.desired, now),
        )
        return there, plan(gpus.desired, there, now)

    async def _choose(
        self, wanted: Desired | None, seen: Seen, now: float
    ) -> tuple[Gpus, Looks, bool]:
        """One round; at its end, whether something was learned that asks for another."""
        chosen = self.fallbacks.settle(wanted, seen.views)
        desired = await asyncio.to_thread(self.reverts.settle, chosen, seen, self.books, now)
        gpus = self.gpus.look(desired, seen, self.families())
        looks = await self.look(gpus, seen)
        if self.fallbacks.learn(self.reverts.as_wanted(looks), seen.views, gpus.roll):
            return gpus, looks, True
        if self.reverts.learn(looks, gpus.roll):
            return gpus, looks, True
        changes = self.surges.changes(looks, seen, gpus.roll, self.books)
        again = self.gpus.learn(barred(gpus, looks, seen, self.books), changes)
        return gpus, looks, again
