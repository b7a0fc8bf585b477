"""When a tick has seen nothing new, so that its plan and its report are those of the tick before.

Everything is looked at all the same, the files on disk included: what is spared is to reckon the
same from the same (a plan is a pure function).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.apply.pushes import Noticed
from reconciler.loop.gpus import Gpus
from reconciler.loop.intent import Understanding
from reconciler.loop.memory import Memory
from reconciler.loop.observation import Looks, Seen
from reconciler.plan.actions import Plan
from reconciler.plan.ids import ModelName
from reconciler.plan.maintenance import Maintenance
from reconciler.plan.observed import Observed, ObservedModel, ProcessPhase


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """All that a plan and a report are made from, but for the books and the time.

    `unkept`: of records. `over_budget`: what there is to say of the cache's size.
    `noticed`: newer pushes in the hub. `epoch`: what the clock's zero is on the wall; it moves
    when somebody sets the wall clock.
    """

    understanding: Understanding
    looks: Looks
    gpus: Gpus
    seen: Seen
    doubts: tuple[str, ...]
    unkept: tuple[str, ...]
    over_budget: str | None
    noticed: Mapping[ModelName, Noticed]
    memory: Memory | None
    epoch: str
    ending: bool
    maintenance: Maintenance | None = None

    def is_as(self, before: "Scene") -> bool:
        """What is compared by identity is the very same value while nothing in it changes."""
        return (
            self.understanding is before.understanding
            and self.looks is before.looks
            and self.gpus is before.gpus
            and self.memory is before.memory
            and self.seen == before.seen
            and self.maintenance == before.maintenance
            and (self.doubts, self.unkept) == (before.doubts, before.unkept)
            and (self.over_budget, self.noticed, self.epoch, self.ending)
            == (before.over_budget, before.noticed, before.epoch, before.ending)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Standstill:
    """A plan that holds for as long as its scene does."""

    scene: Scene
    made: Plan


def standstill(scene: Scene, there: Observed, made: Plan) -> Standstill | None:
    """None where the plan changes something, or where time alone may change the plan."""
    if made.actions or made.next_at is not None or scene.seen.in_flight:
        return None
    desired = scene.understanding.desired
    if desired is not None and any(
        desired.suspends(name) and _has_a_deadline(model) for name, model in there.models.items()
    ):
        return None
    return Standstill(scene=scene, made=made)


def _has_a_deadline(model: ObservedModel) -> bool:
    """For a try or a load; a plan that is suspended says nothing of them."""
    loading = any(process.phase is ProcessPhase.LOADING for process in model.processes)
    return loading or model.failure is not None
