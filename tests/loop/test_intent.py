"""The manifest in force is kept on disk, and that is tried until it is."""

import asyncio
from pathlib import Path

from reconciler.apply.rail_notes import RailFile
from reconciler.events import Journal
from reconciler.loop.intent import Intent
from reconciler.loop.orders import Orders
from reconciler.loop.rails import Rails
from reconciler.node.clock import SystemClock
from reconciler.plan.ids import NodeName
from reconciler.source.last_good import LastGood
from reconciler.source.snapshot import Snapshot, SourceFile

TEXT = b"""
apiVersion: xgen.io/v1alpha1
kind: ModelManifest
metadata: {name: test}
spec: {models: [{name: a, source: gguf/org_a}]}
"""


def intent(folder: Path, *, peers: bool = False) -> Intent:
    node = NodeName("n")
    orders = Orders(wake=lambda: None, look_again=asyncio.Event)
    clock, journal = SystemClock(), Journal(node=node, now=lambda: "t")
    return Intent(
        node=node,
        last_good=LastGood(folder),
        wake=lambda: None,
        journal=journal,
        rails=Rails(RailFile(folder), orders, clock=clock, journal=journal),
        peers=peers,
    )


def snapshot(content: bytes = TEXT, revision: str = "r1") -> Snapshot:
    file = SourceFile(name="a.yaml", content=content)
    return Snapshot(location="/x", revision=revision, files=(file,))


def damage(folder: Path) -> None:
    (kept,) = folder.glob("*.jsonl")
    kept.write_bytes(kept.read_bytes()[:-40])


async def test_a_write_that_failed_is_repeated_at_the_next_tick(tmp_path: Path) -> None:
    folder = tmp_path / "last-good"
    folder.touch()  # a file where the folder should be: no write can succeed
    made = intent(folder)
    await made.open()
    made.offer(snapshot())
    understanding = await made.refresh()
    assert understanding.whole
    assert understanding.not_kept is not None
    folder.unlink()
    assert (await made.refresh()).not_kept is None
    assert LastGood(folder).load().files == {"a.yaml": TEXT}


async def test_in_a_cluster_a_model_that_names_no_nodes_is_for_none_of_them(tmp_path: Path) -> None:
    made = intent(tmp_path, peers=True)
    await made.open()
    made.offer(snapshot())
    desired = (await made.refresh()).desired
    assert desired is not None
    assert desired.models == ()
    assert [each.name for each in desired.elsewhere] == ["a"]
    assert "with peers that needs placement" in desired.elsewhere[0].reason


async def test_a_source_that_is_away_at_the_start_leaves_the_last_good_in_force(
    tmp_path: Path,
) -> None:
    LastGood(tmp_path).save({"a.yaml": TEXT}, "r0")
    made = intent(tmp_path)
    await made.open()
    made.offer(Snapshot(location="/x", revision="", error="cannot read /x: no such directory"))
    understanding = await made.refresh()
    assert understanding.desired is not None
    assert [model.name for model in understanding.desired.models] == ["a"]
    assert (understanding.revision.applied, understanding.whole) == ("r0", False)


async def test_damage_on_disk_is_said_until_something_good_is_kept(tmp_path: Path) -> None:
    LastGood(tmp_path).save({"a.yaml": TEXT}, "r0")
    damage(tmp_path)
    made = intent(tmp_path)
    await made.open()
    assert made.understanding.not_kept is not None
    made.offer(snapshot())
    assert (await made.refresh()).not_kept is None


async def test_a_notice_comes_and_goes_without_a_new_snapshot(tmp_path: Path) -> None:
    made = intent(tmp_path)
    await made.open()
    same = snapshot()
    made.offer(same, ("cannot watch /x",))
    first = await made.refresh()
    assert first.notices == ("cannot watch /x",)
    made.offer(same)
    second = await made.refresh()
    assert second.notices == ()
    assert second.desired is first.desired
