"""Turns each plan into the status, and publishes it when it differs from the one before."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import structlog

from reconciler.backend.inventory import Inventory
from reconciler.condition import Condition, ConditionType, Reason
from reconciler.errors import Bug
from reconciler.loop.chronicle import Chronicle
from reconciler.loop.clock import Clock
from reconciler.loop.conditions import (
    DRAINING,
    Fact,
    devices_known,
    engines_usable,
    faulty,
    history_lost,
    left_alone,
    perhaps_ready,
    source_facts,
    stamped,
    too_large,
)
from reconciler.loop.drifts import NOTHING_SIGHTED, Drifts, Sighting
from reconciler.loop.engine_report import engines_of
from reconciler.loop.intent import Understanding
from reconciler.loop.pace import give_way
from reconciler.loop.rail_conditions import rail_facts
from reconciler.loop.report import ModelFacts, devices_of, model_status, settled
from reconciler.loop.standing import Summary, Wish, model_facts, node_facts
from reconciler.plan.actions import Outlook
from reconciler.plan.gpu_roll import Roll
from reconciler.plan.ids import ModelName
from reconciler.plan.phase import State, advance
from reconciler.pulse import Pulse
from reconciler.status import ModelStatus, Status

_log = structlog.get_logger("xgen.loop")

_OF_RAILS = ("suspended", "revision ")
"""How waits begin that have a condition of their own."""


class Publisher:
    """Holds the last status. `publish` is called with each that differs from it. `inventory`: the
    engines as of now."""

    def __init__(
        self,
        *,
        status: Status,
        publish: Callable[[Status], None],
        clock: Clock,
        chronicle: Chronicle,
        drifts: Drifts,
        inventory: Callable[[], Inventory] = Inventory,
    ) -> None:
        self._inventory = inventory
        self._chronicle = chronicle
        self.drifts = drifts
        self._status = status
        self._publish = publish
        self._clock = clock
        self._states: dict[ModelName, State] = {}
        self.pulse = Pulse(clock.monotonic, clock.wall)

    @property
    def status(self) -> Status:
        """The last one."""
        return self._status

    async def report(
        self,
        outlooks: Sequence[Outlook],
        facts: Mapping[ModelName, ModelFacts],
        understanding: Understanding,
        *,
        sighting: Sighting = NOTHING_SIGHTED,
        roll: Roll | None = None,
        waits: Sequence[str] = (),
        held: Collection[ModelName] = (),
        doubts: Sequence[str] = (),
        over_budget: str | None = None,
        history: Sequence[str] = (),
    ) -> None:
        """Publish what a tick came to.

        `roll`: the GPUs; None: nobody has looked yet. `waits`: what holds up the node as a whole.
        `held`: models for which something is to be begun that a rail holds back.
        `doubts`: processes and records that are left alone, because they are not surely ours.
        `over_budget`: of the cache, if it is too large. `history`: what is not known of models, or
        would not be after a restart.
        """
        shown = [outlook for outlook in outlooks if facts[outlook.model].known]
        self._check_steps(shown)
        desired = understanding.desired
        suspends = desired.suspends if desired is not None else _no_model
        waiting = understanding.waiting
        later = waiting.changes if waiting is not None else ()
        inventory = self._inventory()
        engines = engines_of(inventory)
        applied, attempted = understanding.revision.applied, understanding.revision.attempted
        revision = attempted or applied
        moment = self._now()
        of_models = revision if understanding.whole else applied  # the rest counts as it was
        before = {model.name: model for model in self._status.models}
        models = []
        for number, outlook in enumerate(shown):
            await give_way(number)
            name, known = outlook.model, facts[outlook.model]
            model = model_status(outlook, known, inventory, wall=self._clock.wall)
            due = name in held or (name in later and model.state is State.LOADED)
            wish = _wish(known, suspended=suspends(name), due=due)
            models.append(self._with_conditions(model, wish, of_models, before.get(name), moment))
        models.sort(key=lambda model: model.name)
        drift = self.drifts.see(models, sighting)
        for number, model in enumerate(models):
            await give_way(number)
            said = drift(model.name)
            now = replace(model, drift=said) if said else model
            # The very value of before where nothing is new: so statuses are compared in no time.
            models[number] = before[model.name] if before.get(model.name) == now else now
        summary = Summary(
            understanding=understanding,
            models=models,
            waits=[wait for wait in waits if not wait.startswith(_OF_RAILS)],
            suspended=desired is not None and desired.suspend,
            ending=self._status.draining,
        )
        conditions = [
            *node_facts(summary),
            *source_facts(understanding),
            *rail_facts(understanding, models),
        ]
        if doubts:
            conditions.append(left_alone(doubts))
        if history:
            conditions.append(history_lost(history))
        if over_budget is not None:
            conditions.append(too_large(over_budget))
        if roll is not None and (devices := devices_known(roll)) is not None:
            conditions.append(devices)
        if (usable := engines_usable(engines or ())) is not None:
            conditions.append(usable)
        if self._status.draining:
            conditions.append(DRAINING)
        ready = desired is not None and all(
            desired.suspends(model.name) or settled(model, facts[model.name]) for model in models
        )
        self._put(
            replace(
                self._status,
                revision=understanding.revision,
                devices=devices_of(roll) if roll is not None else (),
                engines=engines,
                models=tuple(models),
                drift=drift(None),
                elsewhere=desired.elsewhere if desired else (),
                unknown_because=understanding.unknown_because,
                ready=self._status.ready or ready,
                conditions=stamped(
                    conditions, self._status.conditions, now=moment, revision=revision
                ),
            )
        )
        # Only now: it gives way, and what is being stopped must have left the status before.
        await self._chronicle.planned(shown, (*waits, *doubts))

    def fail(self, error: Exception) -> None:
        """Publish that the agent itself is at fault; the next report takes that back."""
        self._put(
            replace(
                self._status,
                conditions=self._with(*faulty(error)),
                models=tuple(map(self._perhaps_ready, self._status.models)),
            )
        )

    def drain(self) -> None:
        """Publish that new work is refused from now on."""
        self._put(replace(self._status, draining=True, conditions=self._with(DRAINING)))

    def close(self) -> None:
        """Publish that peers get no new work from here either."""
        self._put(replace(self._status, closed=True))

    def _with(self, *facts: Fact) -> tuple[Condition, ...]:
        """The conditions as they stand, but for these."""
        return _replaced(self._status.conditions, facts, now=self._now())

    def _perhaps_ready(self, model: ModelStatus) -> ModelStatus:
        ready = next((each for each in model.conditions if each.type is ConditionType.READY), None)
        if ready is None or ready.reason is Reason.TICK_FAILED:
            return model
        said = _replaced(model.conditions, [perhaps_ready(ready)], now=self._now())
        return replace(model, conditions=said)

    def _with_conditions(
        self,
        model: ModelStatus,
        wish: Wish,
        revision: str | None,
        before: ModelStatus | None,
        moment: str,
    ) -> ModelStatus:
        said = stamped(
            model_facts(model, wish),
            before.conditions if before is not None else (),
            now=moment,
            revision=revision,
        )
        return replace(model, conditions=said)

    def _now(self) -> str:
        return self._clock.wall(self._clock.monotonic())

    def _put(self, status: Status) -> None:
        if status == self._status:
            return
        self._status = replace(status, version=self._status.version + 1)
        self._publish(self._status)

    def _check_steps(self, outlooks: Sequence[Outlook]) -> None:
        """An illegal step to another state is our bug, said and survived."""
        before, self._states = self._states, {}
        for outlook in outlooks:
            old = before.get(outlook.model)
            try:
                advance(old, outlook.state)
            except Bug:
                _log.exception("illegal step between states", model=outlook.model)
            self._states[outlook.model] = outlook.state


def _no_model(model: ModelName) -> bool:
    del model
    return False


def _wish(facts: ModelFacts, *, suspended: bool, due: bool) -> Wish:
    effect = facts.effect
    held = Reason.SUSPENDED if suspended else Reason.HELD if due else None
    return Wish(
        there=facts.desired is not None,
        under_way=effect is not None and not effect.aborting,
        moving=any(view.loaded_at is None or view.stopping for view in facts.views),
        held=held,
        due=due,
    )


def _replaced(
    conditions: Sequence[Condition], facts: Sequence[Fact], *, now: str
) -> tuple[Condition, ...]:
    """In their places; new ones last."""
    revision = conditions[0].observed_revision if conditions else None
    new = {each.type: each for each in stamped(facts, conditions, now=now, revision=revision)}
    kept = [new.pop(each.type, each) for each in conditions]
    return (*kept, *new.values())
