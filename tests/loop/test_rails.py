"""What operators order lasts, and ends as it was said; the manifest's own word stays the last."""

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

import pytest

from reconciler.apply.rail_notes import RailFile
from reconciler.errors import Rejected, Transient
from reconciler.events import EventKind, Journal
from reconciler.loop.intent import Understanding
from reconciler.loop.orders import Orders
from reconciler.loop.rails import Rails, Runs, overlaid
from reconciler.plan.desired import Desired, WaitingRevision
from reconciler.plan.ids import ModelName, NodeName, Place
from reconciler.plan.maintenance import Window
from reconciler.plan.stop_limit import DEFAULT_STOP_LIMIT, StopLimit
from reconciler.plan.suspension import Suspension
from reconciler.status import Revision
from tests.plan.world import desired_model

A = ModelName("a")
START = datetime(2026, 12, 1, tzinfo=UTC)  # a Tuesday
SATURDAYS = Window(days=frozenset({5}), start=time(2), seconds=3600.0)
RUNS = Runs(living=frozenset(map(ModelName, "abcd")))
FOUR = frozenset(map(ModelName, "abcd"))


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self, moment: float) -> str:
        return (START + timedelta(seconds=moment)).isoformat()


class Node:
    """One agent after another on a data folder, and what the manifest says."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = Clock()
        self.said = Understanding(
            desired=wanting("abcd"), revision=Revision(applied="r1", attempted="r1")
        )
        self.restart()

    def restart(self, limit: StopLimit = DEFAULT_STOP_LIMIT) -> None:
        def read() -> asyncio.Event:
            event = asyncio.Event()
            event.set()
            return event

        self.journal = Journal(node=NodeName("n"), now=lambda: "t")
        self.orders = Orders(wake=lambda: None, look_again=read)
        self.rails = Rails(
            RailFile(self.folder), self.orders, clock=self.clock, journal=self.journal, limit=limit
        )
        self.rails.open()

    async def turn(self) -> bool:
        return await self.rails.turn(self.said, self.clock.now)

    async def order(self, order: Coroutine[Any, Any, str]) -> str:
        """Give it, and let the loop carry it out."""
        task = asyncio.ensure_future(order)
        for _ in range(5):
            await asyncio.sleep(0)
        await self.turn()
        return await task

    def suspends(self, name: ModelName = A) -> bool:
        assert self.said.desired is not None
        return overlaid(self.said.desired, self.rails.suspensions).suspends(name)

    async def suspend(self, model: ModelName | None = A, until: str | None = None) -> str:
        return await self.order(self.orders.suspend(model, by="kim", reason="so", until=until))

    async def resume(self, model: ModelName | None = A) -> str:
        return await self.order(self.orders.resume(model, by="kim"))


def wanting(names: str, revision: str = "r1", **fields: Any) -> Desired:
    models = tuple(desired_model(name) for name in names)
    return Desired(node=NodeName("n"), revision=revision, models=models, **fields)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def in_manifest(model: ModelName | None) -> Understanding:
    place = Place(file="models.yaml", line=4, column=3)
    suspension = Suspension(model=model, place=place)
    return Understanding(desired=wanting("abcd", suspend=model is None, suspensions=(suspension,)))


@pytest.mark.parametrize("model", [A, None])
async def test_a_suspension_lasts_until_it_is_lifted(node: Node, model: ModelName | None) -> None:
    said = await node.suspend(model)
    assert said.startswith(f"{model or 'the node'} is suspended by kim since 2026-12-01T00:00:00")
    assert said.endswith(": so")
    node.restart()
    assert node.suspends()
    assert node.suspends(ModelName("b")) is (model is None)
    await node.resume(model)
    node.restart()
    assert not node.suspends()


async def test_a_suspension_ends_by_its_time(node: Node) -> None:
    await node.suspend(until=(START + timedelta(hours=2)).isoformat())
    assert node.rails.next_at(node.clock.now) == 7200.0
    node.clock.now = 7199.0
    assert not await node.turn()
    assert node.suspends()
    node.clock.now = 7200.0
    assert await node.turn()
    assert not node.suspends()
    assert node.rails.next_at(node.clock.now) is None
    kinds = [event.kind for event in node.journal.after(0).events]
    assert kinds == [EventKind.COMMAND_RECEIVED, EventKind.SUSPENSION_ENDED]


async def test_one_that_ended_while_no_agent_ran_is_over(node: Node) -> None:
    await node.suspend(until=(START + timedelta(hours=2)).isoformat())
    node.clock.now = 9000.0
    node.restart()
    await node.turn()
    assert not node.suspends()


@pytest.mark.parametrize("model", [A, None])
async def test_what_the_manifest_suspends_is_lifted_there(
    node: Node, model: ModelName | None
) -> None:
    node.said = in_manifest(model)
    with pytest.raises(Rejected, match=r"the manifest suspends it \(models\.yaml:4:3\)"):
        await node.resume(model)
    await node.suspend(model)
    assert "still, by the manifest (models.yaml:4:3)" in await node.resume(model)
    assert node.suspends()


async def test_who_resumes_hears_what_is_suspended_still(node: Node) -> None:
    await node.suspend(A)
    await node.suspend(None)
    assert await node.resume(None) == "the node is suspended no more; suspended still: a"
    assert await node.resume(None) == "the node is not suspended; suspended still: a"


async def test_an_order_that_cannot_be_kept_changes_nothing(tmp_path: Path) -> None:
    node = Node(tmp_path)
    (tmp_path / "rails.json.partial").mkdir()  # where a file would be written first
    with pytest.raises(Transient, match="cannot write"):
        await node.suspend()
    assert not node.suspends()


async def judged(node: Node, names: str, revision: str, **fields: Any) -> WaitingRevision | None:
    """As the intent does it."""
    candidate = wanting(names, revision, **fields)
    waiting = node.rails.judge(candidate, wanting("abcd"), RUNS)
    if waiting is not None:
        await node.rails.wait(waiting)
    return waiting


async def test_a_confirmation_is_for_one_revision_and_lasts(node: Node) -> None:
    assert await judged(node, "a", "aaaaaaaa") is not None
    said = await node.order(node.orders.confirm("aaaaaaa", by="kim"))
    assert said == "revision aaaaaaaa is confirmed: it stops 3 of 4 running models"
    node.restart()
    assert node.rails.judge(wanting("a", "aaaaaaaa"), wanting("abcd"), RUNS) is None
    assert node.rails.judge(wanting("a", "bbbbbbbb"), wanting("abcd"), RUNS) is not None


async def test_a_newer_revision_takes_its_own_look(node: Node) -> None:
    await judged(node, "a", "aaaaaaaa")
    await node.order(node.orders.confirm("aaaaaaaa", by="kim"))
    assert await judged(node, "b", "bbbbbbbb") is not None  # before the first was taken up
    assert node.rails.confirmed is None
    with pytest.raises(Rejected, match="a newer one, bbbbbbbb, has taken its place"):
        await node.order(node.orders.confirm("aaaaaaaa", by="kim"))
    assert await judged(node, "abc", "cccccccc") is None


@pytest.mark.parametrize("revision", ["zzzzzzzz", "aaaaaaaab"])
async def test_only_what_waits_can_be_confirmed(node: Node, revision: str) -> None:
    await judged(node, "a", "aaaaaaaa")
    with pytest.raises(Rejected, match="it does not wait here; waiting: aaaaaaaa"):
        await node.order(node.orders.confirm(revision, by="kim"))


async def test_what_waits_goes_on_waiting_however_little_runs_after_a_restart(node: Node) -> None:
    await judged(node, "a", "aaaaaaaa")
    node.restart()
    candidate, before = wanting("a", "aaaaaaaa"), wanting("abcd")
    assert node.rails.judge(candidate, before, Runs()) is not None
    node.restart(StopLimit())  # an operator's word
    assert node.rails.judge(candidate, before, RUNS) is None


async def test_what_came_up_before_counts_as_running_after_a_restart(node: Node) -> None:
    """With `--on-exit stop`, or after a boot, nothing runs when the manifest is read."""
    runs = Runs(proven=FOUR)
    assert node.rails.judge(wanting("a", "r2"), wanting("abcd"), runs) is not None
    assert node.rails.judge(wanting("a", "r2"), wanting("ab"), runs) is None
    assert node.rails.judge(wanting("a", "r2"), None, runs) is None


@pytest.mark.parametrize(
    ("names", "confirms", "waits"),
    [
        ("a", "aaaaaaa", False),
        ("ac", "aaaaaaa", False),  # it stops fewer
        ("b", "aaaaaaa", True),  # it stops another one
        ("a", "bbbbbbb", True),
    ],
)
async def test_the_manifest_confirms_by_the_revision_that_waits(
    node: Node, names: str, confirms: str, waits: bool
) -> None:
    limits = (StopLimit(count=0),)
    await judged(node, "a", "aaaaaaaa", stop_limits=limits)
    await judged(node, "abc", "cccccccc", stop_limits=limits)  # somebody else's, meanwhile
    node.restart()
    fields = {"confirms": frozenset({confirms}), "stop_limits": limits}
    assert (await judged(node, names, "r3", **fields) is not None) is waits


async def test_a_hurry_ends_with_the_window_or_the_next_revision(node: Node) -> None:
    node.said = Understanding(
        desired=wanting("a", windows=(SATURDAYS,)), revision=Revision(applied="r1", attempted="r1")
    )
    closed = node.rails.maintenance(node.said.desired, 0.0)
    assert closed is not None
    assert closed.opens == "Sat 2026-12-05 02:00 UTC"
    assert closed.changes_at == (4 * 24 + 2) * 3600
    await node.turn()
    await node.order(node.orders.hurry(by="kim"))
    node.restart()
    await node.turn()
    assert node.rails.maintenance(node.said.desired, 0.0) is None
    node.clock.now = closed.changes_at
    await node.turn()
    opened = node.rails.maintenance(node.said.desired, node.clock.now)
    assert opened is not None
    assert opened.is_open
    node.clock.now += 7200
    await node.turn()
    again = node.rails.maintenance(node.said.desired, node.clock.now)
    assert again is not None
    assert not again.is_open


async def test_a_zone_that_this_machine_does_not_know_opens_no_window(node: Node) -> None:
    window = Window(
        days=frozenset(range(7)), start=SATURDAYS.start, seconds=60.0, timezone="Nowhere/Known"
    )
    found = node.rails.maintenance(wanting("a", windows=(window,)), 0.0)
    assert found is not None
    assert not found.is_open
    assert found.opens == "never: this node has no time zone Nowhere/Known"


async def test_a_suspension_that_ended_while_no_agent_ran_is_told(node: Node) -> None:
    await node.suspend(until=(START + timedelta(hours=2)).isoformat())
    node.clock.now = 7300.0
    node.restart()
    await node.turn()
    kinds = [event.kind for event in node.journal.after(0).events]
    assert kinds == [EventKind.SUSPENSION_ENDED]
    assert node.rails.suspensions == ()


async def test_who_resumes_what_is_not_there_is_told_so(node: Node) -> None:
    with pytest.raises(Rejected, match="cannot resume nosuch: no model here has this name"):
        await node.resume(ModelName("nosuch"))
    assert await node.resume(A) == "a is not suspended"


async def test_a_hurry_says_what_it_does(node: Node) -> None:
    node.said = replace(node.said, desired=wanting("abcd", windows=(SATURDAYS,)))
    await node.turn()
    said = await node.order(node.orders.hurry(by="kim"))
    assert "nothing waits for the maintenance window" in said
    node.rails.note_windowed((A,))
    said = await node.order(node.orders.hurry(by="kim"))
    assert said == "revision r1: does now what waited for the maintenance window: a"
