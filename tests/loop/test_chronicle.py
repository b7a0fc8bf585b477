"""Events tell what is new, and nothing again at every tick."""

import asyncio
from dataclasses import replace

from reconciler.events import Event, EventKind, Journal, Level
from reconciler.loop.chronicle import Chronicle
from reconciler.loop.pace import PIECE
from reconciler.plan.actions import Outlook, Target
from reconciler.plan.ids import ModelName, NodeName, SpecHash
from reconciler.plan.observed import Adoption
from reconciler.plan.phase import State
from tests.loop.book_entries import exited, view

M = ModelName("m")


class Told:
    def __init__(self) -> None:
        self.journal = Journal(node=NodeName("n"), now=lambda: "t")
        self.chronicle = Chronicle(self.journal)

    async def plan(self, state: State, reason: str = "so", target: Target | None = None) -> None:
        await self.chronicle.planned(
            [Outlook(model=M, state=state, reason=reason, target=target)], ()
        )

    @property
    def events(self) -> tuple[Event, ...]:
        return self.journal.after(0).events

    @property
    def kinds(self) -> list[EventKind]:
        return [event.kind for event in self.events]


async def test_a_state_is_told_once() -> None:
    told = Told()
    for state in (State.LOADING, State.LOADING, State.LOADED, State.LOADED):
        await told.plan(state)
    assert [event.data["state"] for event in told.events] == ["loading", "loaded"]


async def test_another_wait_in_the_same_state_is_told() -> None:
    told = Told()
    for reason in ("waits: a", "waits: a", "waits: b"):
        await told.plan(State.PENDING, reason)
    assert told.kinds == [EventKind.MODEL_STATE_CHANGED, EventKind.MODEL_WAIT_CHANGED]
    assert told.events[-1].reason == "waits: b"


async def test_progress_is_not_told() -> None:
    told = Told()
    for percent in range(5):
        await told.plan(State.CACHING, f"fetches x: {percent} %")
    assert len(told.events) == 1


async def test_an_adopted_backend_is_not_told_as_started() -> None:
    told = Told()
    adopted = replace(
        view(), started_at=-600.0, adopted=Adoption(at=5.0, was_loaded=True), loaded_at=5.5
    )
    for _ in range(2):
        told.chronicle.backends([adopted])
    assert told.kinds == [EventKind.BACKEND_ADOPTED, EventKind.BACKEND_LOADED]
    first, loaded = told.events
    assert (first.data["uptime_seconds"], first.data["was_loaded"]) == (605.0, True)
    assert loaded.reason == "gave its first real answer 0.5 s after this agent found it"
    assert "load_seconds" not in loaded.data


async def test_trouble_is_a_warning() -> None:
    told = Told()
    await told.plan(State.BLOCKED, "no backend")
    assert told.events[0].level is Level.WARNING


async def test_the_coming_instance_is_told_beside_the_one_that_serves() -> None:
    told = Told()
    for state in (State.CACHING, State.CACHING, State.PENDING):
        await told.plan(
            State.LOADED, target=Target(spec_hash=SpecHash("1:b"), state=state, reason="r")
        )
    assert [event.data["state"] for event in told.events] == ["loaded", "caching", "pending"]


async def test_a_model_that_is_gone_is_told() -> None:
    told = Told()
    await told.plan(State.UNLOADING)
    for _ in range(2):
        await told.chronicle.planned([], ())
    assert told.kinds == [EventKind.MODEL_STATE_CHANGED, EventKind.MODEL_GONE]


def test_a_backend_starts_loads_and_exits_once() -> None:
    told = Told()
    for loaded in (False, False, True, True):
        told.chronicle.backends([view(loaded=loaded)])
    told.chronicle.exited(exited("run"))
    assert told.kinds == [
        EventKind.BACKEND_STARTED,
        EventKind.BACKEND_LOADED,
        EventKind.BACKEND_EXITED,
    ]
    assert told.events[-1].level is Level.WARNING


async def test_waits_of_the_node_are_told_when_they_change() -> None:
    told = Told()
    for waits in ((), ("suspended",), ("suspended",), ()):
        await told.chronicle.planned([], waits)
    assert [event.reason for event in told.events] == [
        "suspended",
        "nothing holds up the node any more",
    ]


def test_the_same_fault_at_every_tick_is_told_once() -> None:
    told = Told()
    for _ in range(3):
        told.chronicle.tick_failed(ValueError("x"))
    told.chronicle.tick_ended()
    told.chronicle.tick_failed(ValueError("x"))
    assert told.kinds == [EventKind.TICK_FAILED] * 2


async def test_many_models_that_change_at_once_let_others_have_their_turn() -> None:
    """Requests are served by the same loop: a block of it stalls every stream."""
    told, turns = Told(), 0

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    waiting = asyncio.create_task(other())
    outlooks = [
        Outlook(model=ModelName(f"m{number}"), state=State.PENDING, reason="so")
        for number in range(500)
    ]
    await told.chronicle.planned(outlooks, ())
    await told.chronicle.planned([], ())
    waiting.cancel()
    assert len(told.events) == 1000
    assert turns >= 2 * 500 // PIECE - 2


def test_that_newer_pushes_cannot_be_seen_is_a_warning_once() -> None:
    told = Told()
    for _ in range(3):
        told.chronicle.noticed({M: "damaged"}, unseen={M})
    assert [(event.kind, event.level) for event in told.events] == [
        (EventKind.PUSHES_UNSEEN, Level.WARNING)
    ]


def test_a_newer_push_is_told_once_and_again_when_more_is_known() -> None:
    told = Told()
    for reasons in ({M: "newer"}, {M: "newer"}, {M: "newer; cannot fetch"}, {}, {M: "newer"}):
        told.chronicle.noticed(reasons)
    assert [event.reason for event in told.events] == ["newer", "newer; cannot fetch", "newer"]
    assert set(told.kinds) == {EventKind.PUSH_NOTICED}
