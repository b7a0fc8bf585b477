"""A revision that would stop too much waits whole: what was in force stays so, on the disk too."""

import asyncio
from pathlib import Path

from reconciler.apply.rail_notes import RailFile
from reconciler.events import EventKind, Journal
from reconciler.loop.intent import Intent, Understanding
from reconciler.loop.orders import Orders
from reconciler.loop.rails import Rails, Runs
from reconciler.node.clock import SystemClock
from reconciler.plan.actions import Outlook
from reconciler.plan.ids import ModelName, NodeName
from reconciler.plan.phase import State
from reconciler.plan.rails import told_of
from reconciler.source.last_good import LastGood
from reconciler.source.snapshot import Snapshot, SourceFile
from tests.loop.test_commands import read_already
from tests.manifest.texts import manifest, model

NODE = NodeName("n")
FOUR = frozenset(map(ModelName, "abcd"))


class Agent:
    """What an agent understands. `running`: which models have a process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.running = FOUR

    async def open(self) -> None:
        self.journal = Journal(node=NODE, now=lambda: "t")
        orders = Orders(wake=lambda: None, look_again=read_already)
        self.rails = Rails(RailFile(self.folder), orders, clock=SystemClock(), journal=self.journal)
        self.rails.open()
        self.orders = orders
        self.intent = Intent(
            node=NODE,
            last_good=LastGood(self.folder / "last-good"),
            wake=lambda: None,
            journal=self.journal,
            rails=self.rails,
        )
        await self.intent.open()

    async def read(self, content: bytes, revision: str) -> Understanding:
        file = SourceFile(name="a.yaml", content=content)
        self.intent.offer(Snapshot(location="/x", revision=revision, files=(file,)))
        return await self.look()

    async def look(self) -> Understanding:
        return await self.intent.refresh(lambda: Runs(living=self.running))

    async def confirm(self, revision: str) -> Understanding:
        asked = asyncio.ensure_future(self.orders.confirm(revision, by="kim"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert await self.rails.turn(self.intent.understanding, 0.0)
        await asked
        return await self.look()


async def agent(folder: Path, *, in_force: bytes | None = None) -> Agent:
    """Of which four models run."""
    made = Agent(folder)
    await made.open()
    await made.read(in_force or manifest(*"abcd"), "r1")
    assert made.intent.understanding.whole
    return made


def names(now: Understanding) -> str:
    return "".join(model.name for model in now.desired.models) if now.desired else "-"


async def test_what_was_in_force_stays_so_until_somebody_confirms(tmp_path: Path) -> None:
    made = await agent(tmp_path)
    now = await made.read(manifest("a", "z"), "r2222222")
    assert (names(now), now.whole) == ("abcd", False)
    assert (now.revision.applied, now.revision.attempted) == ("r1", "r2222222")
    assert now.waiting is not None
    assert now.waiting.stops == ("b", "c", "d")
    assert made.journal.after(0).events[-1].kind is EventKind.REVISION_WAITS
    assert await made.look() is now  # the next tick finds nothing new

    now = await made.confirm("r2222222")
    assert (names(now), now.whole, now.waiting) == ("az", True, None)
    assert now.revision.applied == "r2222222"
    assert LastGood(tmp_path / "last-good").load().revision == "r2222222"


async def test_what_it_would_only_change_is_told(tmp_path: Path) -> None:
    made = await agent(tmp_path)
    now = await made.read(manifest(model("a", aliases=["other"]), "z"), "r2222222")
    assert now.desired is not None
    assert now.waiting is not None
    assert (now.waiting.stops, now.waiting.changes) == (("b", "c", "d"), ("a",))
    shown = told_of(now.desired, Outlook(model=ModelName("a"), state=State.LOADED, reason="serves"))
    why = "revision r2222222, which waits for confirmation, would change it"
    assert shown.reason == f"serves; {why}"


async def test_a_restart_changes_nothing_of_that(tmp_path: Path) -> None:
    """The machine, too: then nothing runs when the manifest is read."""
    before = await agent(tmp_path)
    await before.read(manifest("a"), "r2222222")
    made = Agent(tmp_path)
    made.running = frozenset()
    await made.open()
    now = await made.read(manifest("a"), "r2222222")
    assert (names(now), now.revision.applied) == ("abcd", "r1")
    assert now.waiting is not None
    assert names(await made.confirm("r2222222")) == "a"


async def test_what_was_confirmed_is_taken_up_by_the_next_agent(tmp_path: Path) -> None:
    before = await agent(tmp_path)
    await before.read(manifest("a"), "r2222222")
    asked = asyncio.ensure_future(before.orders.confirm("r2222222", by="kim"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await before.rails.turn(before.intent.understanding, 0.0)
    await asked  # and then it dies
    made = Agent(tmp_path)
    await made.open()
    assert names(await made.read(manifest("a"), "r2222222")) == "a"
    assert made.rails.confirmed is None


async def test_a_mended_revision_takes_its_place(tmp_path: Path) -> None:
    made = await agent(tmp_path)
    await made.read(manifest("a"), "r2222222")
    now = await made.read(manifest("a", "b", "c", "z"), "r3")
    assert (names(now), now.waiting, now.revision.applied) == ("abcz", None, "r3")


async def test_a_source_that_is_lost_meanwhile_changes_nothing(tmp_path: Path) -> None:
    """argo-cd#2573: what cannot be read is not nothing."""
    made = await agent(tmp_path)
    await made.read(manifest("a"), "r2222222")
    made.intent.offer(Snapshot(location="/x", revision="", error="cannot read /x"))
    now = await made.look()
    assert (names(now), now.revision.applied) == ("abcd", "r1")
    now = await made.read(manifest("a"), "r2222222")
    assert now.waiting is not None


async def test_what_the_waiting_one_suspends_is_suspended_at_once(tmp_path: Path) -> None:
    made = await agent(tmp_path)
    now = await made.read(manifest("a", suspend=True), "r2222222")
    assert (names(now), now.waiting is not None) == ("abcd", True)
    assert now.desired is not None
    assert now.desired.suspend


async def test_zero_models_that_are_meant_wait_too(tmp_path: Path) -> None:
    made = await agent(tmp_path)
    now = await made.read(manifest(allow_empty=True), "r2222222")
    assert names(now) == "abcd"
    assert names(await made.confirm("r222222")) == ""


async def test_the_first_manifest_of_a_fresh_node_waits_for_nobody(tmp_path: Path) -> None:
    made = Agent(tmp_path)
    made.running = frozenset()
    await made.open()
    assert names(await made.read(manifest("a"), "r1")) == "a"


async def test_a_manifest_is_not_lost_with_the_last_good_one(tmp_path: Path) -> None:
    """What runs is adopted, and nobody knows by which manifest: it goes on."""
    made = Agent(tmp_path)
    await made.open()
    now = await made.read(manifest("a"), "r2222222")
    assert names(now) == "a"
    assert now.waiting is not None
    assert now.waiting.stops == ("b", "c", "d")
    assert LastGood(tmp_path / "last-good").load().files == {}
    assert (await made.confirm("r2222222")).whole


async def test_zero_models_stay_zero_while_the_source_is_away_at_a_start(tmp_path: Path) -> None:
    before = await agent(tmp_path)
    before.running = frozenset()
    await before.read(manifest(allow_empty=True), "r2")
    made = Agent(tmp_path)
    await made.open()
    made.intent.offer(Snapshot(location="/x", revision="", error="cannot read /x"))
    assert names(await made.look()) == ""
    made.intent.offer(Snapshot(location="/x", revision="r3", files=()))
    assert names(await made.look()) == ""
