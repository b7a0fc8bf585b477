"""Ticks of the real loop over a real cache: what they see, and what they spare."""

import asyncio
import os
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path

import pytest

from reconciler.apply.stop import Hurry
from reconciler.cache.model_cache import ModelCache
from reconciler.loop.leaving import none_stays
from reconciler.manifest.policy import Permissions
from reconciler.node.board import Board
from reconciler.node.hub import make_store
from reconciler.node.parts import Parts, assembled
from reconciler.plan.ids import NodeName
from reconciler.settings import HubSettings, Settings
from reconciler.status import Planned, Status
from tests.e2e.agent import MINIMAL_GGUF, llama_server_stand_in
from tests.e2e.manifests import manifest, model
from tests.loop.ticking import until_engines_are_known

NODE = NodeName("node-a")
SUSPENDED = "  suspend: true\n"


class Node:
    """A loop that ticks when it is told to."""

    def __init__(self, parts: Parts, board: Board, folder: Path) -> None:
        self._parts = parts
        self._board = board
        self.manifests = folder / "manifests"
        self.hub = folder / "hub"
        self._models = folder / "models"
        self.cached = self._models / "gguf/test_model/model.gguf"

    async def take_up(self, text: str) -> None:
        (self.manifests / "models.yaml").write_text(text)
        self._parts.intent.offer(await self._parts.source.read())

    async def fetch(self) -> None:
        """What the hub holds for the only model, as an effect of the loop would."""
        desired = self._parts.intent.understanding.desired
        assert desired is not None
        cache = ModelCache(self._models, make_store(HubSettings(location=str(self.hub))))
        await asyncio.to_thread(cache.fetch, desired.models[0].spec)

    def under_way(self) -> int:
        return len(self._parts.effects.in_flight())

    async def until_under_way(self) -> int:
        """As soon as there is something: how much."""
        async with asyncio.timeout(30):
            while True:
                if begun := self.under_way():
                    return begun
                await asyncio.sleep(0)

    def end(self) -> None:
        self._parts.reconciler.end(none_stays)

    async def tick(self) -> Planned:
        await self._parts.reconciler.tick()
        planned = self._board.planned()
        assert planned is not None
        return planned

    @property
    def reason(self) -> str:
        (only,) = self._board.current().models
        return only.reason


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    (tmp_path / "manifests").mkdir()
    (tmp_path / "hub").mkdir()
    settings = Settings(
        manifest=str(tmp_path / "manifests"),
        hub=HubSettings(location=str(tmp_path / "hub")),
        data_dir=tmp_path / "data",
        models_dir=tmp_path / "models",
        llama_server=str(llama_server_stand_in(tmp_path)),
        environment=dict(os.environ),
        permissions=Permissions(file_roots=(tmp_path,)),
    )
    board = Board(Status(node=NODE))
    async with assembled(settings, NODE, board, Hurry()) as parts:
        await until_engines_are_known(parts, board)
        yield Node(parts, board, tmp_path)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(MINIMAL_GGUF)
    return path


async def test_a_tick_that_sees_nothing_new_keeps_its_plan(node: Node, file: Path) -> None:
    await node.take_up(manifest(model(source=f"file://{file}"), spec=SUSPENDED))
    ticks = [await node.tick() for _ in range(5)]
    # Not each: what others do to the machine's memory and GPUs meanwhile is new.
    kept = [(first, again) for first, again in pairwise(ticks) if again.plan is first.plan]
    assert kept
    assert all(again.at >= first.at for first, again in kept)
    assert "in the manifest and not running" in node.reason


async def test_a_manifest_that_says_the_same_in_other_words_is_planned_anew(
    node: Node, file: Path
) -> None:
    text = manifest(model(source=f"file://{file}"), spec=SUSPENDED)
    await node.take_up(text)
    first = await node.tick()
    await node.take_up(f"# a comment\n{text}")
    again = await node.tick()
    assert (again.plan, again.revision != first.revision) == (first.plan, True)


@pytest.mark.parametrize("damage", ["gone", "cut"])
async def test_files_that_rot_while_nothing_else_happens_are_seen(node: Node, damage: str) -> None:
    """Of a prefix that a fetch has brought, by the quick check that each tick makes."""
    pushed = node.hub / "gguf/test_model/model.gguf"
    pushed.parent.mkdir(parents=True)
    pushed.write_bytes(MINIMAL_GGUF)
    unsized = model(source="gguf/test_model", skip_memory_check="true")
    await node.take_up(manifest(unsized, spec=SUSPENDED))
    await node.tick()
    assert "are not in the cache" in node.reason
    await node.fetch()
    for _ in range(3):
        await node.tick()
    assert "in the manifest and not running" in node.reason
    if damage == "gone":
        node.cached.unlink()
    else:
        os.truncate(node.cached, 5)
    await node.tick()
    assert "are not in the cache" in node.reason
    node.cached.unlink(missing_ok=True)
    node.cached.write_bytes(MINIMAL_GGUF)
    await node.tick()
    assert "are not in the cache" in node.reason  # another file, as far as one look can tell
    await node.fetch()
    await node.tick()
    assert "in the manifest and not running" in node.reason


async def test_a_header_that_goes_bad_in_place_is_seen(node: Node, file: Path) -> None:
    """`file://`: other content with another size or time is another file."""
    await node.take_up(manifest(model(source=f"file://{file}"), spec=SUSPENDED))
    for _ in range(2):
        await node.tick()
    _spoil(file)
    await node.tick()
    assert "GGUF" in node.reason


async def test_an_end_in_the_middle_of_many_actions_begins_no_more(node: Node) -> None:
    """What it would begin then, the end of the agent would not know of."""
    fields = {"source": "gguf/nobody_has", "skip_memory_check": "true"}
    missing = (model(f"m{number}", **fields) for number in range(500))
    await node.take_up(manifest(*missing))
    ticking = asyncio.create_task(node.tick())
    begun = await node.until_under_way()
    node.end()
    await ticking
    assert begun < 500
    assert node.under_way() <= begun


def _spoil(file: Path) -> None:
    file.write_bytes(b"this is no model" * 10)
