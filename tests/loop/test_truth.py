"""Conditions over a world in which anything may happen at any time: what they say of it is so."""

from dataclasses import replace

from hypothesis import HealthCheck, settings

from reconciler.apply.backends import BackendView
from reconciler.backend.inventory import Inventory
from reconciler.condition import Condition, ConditionType, Reason
from reconciler.loop.conditions import stamped
from reconciler.loop.intent import Understanding
from reconciler.loop.report import ModelFacts, model_status
from reconciler.loop.standing import Summary, Wish, model_facts, node_facts
from reconciler.plan.actions import Outlook, Plan
from reconciler.plan.ids import ModelName
from reconciler.plan.observed import ObservedProcess
from reconciler.status import ModelStatus
from tests.loop.book_entries import view
from tests.plan.test_invariants import PlannerAgainstTheWorld


class ConditionsAgainstTheWorld(PlannerAgainstTheWorld):
    """After each tick, as the loop reports it: what is begun has begun."""

    def tick(self) -> Plan:
        made = super().tick()
        models = [self.reported(outlook, made) for outlook in made.outlook]
        for model in models:
            self.check_model(model)
        self.check_node(made, models)
        return made

    def reported(self, outlook: Outlook, made: Plan) -> ModelStatus:
        world, name = self.world, outlook.model
        desired = (world.manifest or {}).get(name)
        effect = world.under_way[name][0] if name in world.under_way else None
        facts = ModelFacts(
            desired=desired,
            views=tuple(_view(name, each) for each in world.processes.get(name, ())),
            effect=effect,
            failure=world.failures.get(name),
        )
        if not facts.known:  # of what only an earlier agent has left
            facts = replace(facts, views=(replace(view(), model=name),))
        status = model_status(outlook, facts, Inventory(), wall=str)
        due = name in {action.model for action in made.held}
        wish = Wish(
            there=desired is not None,
            under_way=effect is not None and not effect.aborting,
            moving=self.is_moving(name),
            held=Reason.SUSPENDED if world.suspend else Reason.HELD if due else None,
            due=due,
        )
        return replace(status, conditions=stamped(model_facts(status, wish), (), now="t"))

    def is_as_wanted(self, name: ModelName) -> bool:
        """By the world alone: neither the plan nor the status is asked."""
        world = self.world
        desired = (world.manifest or {}).get(name)
        effect = world.under_way.get(name)
        processes = world.processes.get(name, [])
        if desired is None or (effect is not None and not effect[0].aborting):
            return False
        if not desired.enabled:
            return not processes
        wanted = world.wanted_instance(name)
        return [each.instance for each in processes] == [wanted] and _is_well(processes[0])

    def check_model(self, model: ModelStatus) -> None:
        said = _by_type(model.conditions)
        true = {kind for kind, each in said.items() if each.status == "True"}
        ready = said[ConditionType.READY]
        if ConditionType.READY in true:
            assert self.is_as_wanted(model.name), "ready, and not as wanted"
            assert true == {ConditionType.READY}
        if ready.reason is Reason.DISABLED:
            assert self.is_as_wanted(model.name)
            assert not true
        if model.name in self.world.under_way and ConditionType.STALLED not in true:
            effect, _ = self.world.under_way[model.name]
            assert effect.aborting or ConditionType.RECONCILING in true
        if not self.is_as_wanted(model.name) and ConditionType.RECONCILING not in true:
            stalled = ConditionType.STALLED in true
            assert stalled or ready.reason in (Reason.SUSPENDED, Reason.HELD)
        if self.world.suspend and ConditionType.RECONCILING in true:
            assert self.is_moving(model.name), "nothing is begun on a node that is suspended"

    def is_moving(self, name: ModelName) -> bool:
        processes = self.world.processes.get(name, [])
        return name in self.world.under_way or any(
            each.loaded_at is None or each.died for each in processes
        )

    def check_node(self, made: Plan, models: list[ModelStatus]) -> None:
        desired = self.world.desired()
        know = Understanding(desired=desired, location="/x", whole=desired is not None)
        waits = [each for each in made.notes if not each.startswith("suspended")]
        suspended = self.world.suspend
        summary = Summary(understanding=know, models=models, waits=waits, suspended=suspended)
        said = _by_type(stamped(node_facts(summary), (), now="t"))
        if said[ConditionType.READY].status == "True":
            names = {*(self.world.manifest or {}), *self.world.processes, *self.world.under_way}
            assert all(self.is_as_wanted(name) for name in names), "ready, and not all is as wanted"
            assert self.world.manifest is not None
            assert not self.world.leftovers


def _view(name: ModelName, process: ObservedProcess) -> BackendView:
    return replace(
        view(process.nonce, process.instance),
        model=name,
        pid=process.pid,
        gpus=process.gpus,
        started_at=process.started_at,
        loaded_at=process.loaded_at,
        died=process.died,
        stopping=process.died,
    )


def _is_well(process: ObservedProcess) -> bool:
    reads_what_is_there = not process.reads_removed_files
    return process.loaded_at is not None and process.is_sound and reads_what_is_there


def _by_type(conditions: tuple[Condition, ...]) -> dict[ConditionType, Condition]:
    return {each.type: each for each in conditions}


TestConditionsAgainstTheWorld = ConditionsAgainstTheWorld.TestCase
TestConditionsAgainstTheWorld.settings = settings(
    max_examples=25,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
