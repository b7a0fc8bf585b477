"""What an agent's parts tell of whether anybody waits: see `test_full_collections`."""

import gc
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from reconciler.apply.stop import Hurry
from reconciler.node.board import Board
from reconciler.node.clock import SystemClock
from reconciler.node.full_collections import DUE, QUIET_SECONDS
from reconciler.node.parts import Parts, assembled
from reconciler.plan.ids import NodeName
from reconciler.settings import Settings
from reconciler.status import Status
from tests.e2e.manifests import manifest

NODE = NodeName("node-a")


class Ahead(SystemClock):
    seconds = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.seconds


class Node:
    def __init__(self, parts: Parts, clock: Ahead, manifests: Path) -> None:
        self.parts = parts
        self._clock = clock
        self._file = manifests / "models.yaml"

    async def take_up(self, text: str) -> None:
        self._file.write_text(text)
        self.parts.intent.offer(await self.parts.source.read())
        await self.parts.reconciler.tick()

    def look_later(self) -> int:
        """How many full collections the agent makes, once it has been quiet for long enough."""
        made = gc.get_stats()[2]["collections"]
        self._clock.seconds += QUIET_SECONDS
        self.parts.collections.look()
        return int(gc.get_stats()[2]["collections"] - made)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    (tmp_path / "manifests").mkdir()
    settings = Settings(
        manifest=str(tmp_path / "manifests"),
        data_dir=tmp_path / "data",
        models_dir=tmp_path / "models",
        environment=dict(os.environ),
    )
    clock = Ahead()
    async with assembled(settings, NODE, Board(Status(node=NODE)), Hurry(), clock=clock) as parts:
        node = Node(parts, clock, tmp_path / "manifests")
        node.look_later()
        for _ in range(DUE):
            gc.collect(1)
        yield node


async def test_is_made_at_rest(node: Node) -> None:
    assert [node.look_later() for _ in range(3)] == [1, 0, 0]


async def test_is_not_made_while_another_node_works_for_a_client_of_this_one(node: Node) -> None:
    with node.parts.visits.hop():
        assert [node.look_later() for _ in range(3)] == [0, 0, 0]
    assert node.look_later() == 1


async def test_is_not_made_when_a_manifest_has_just_come_into_force(node: Node) -> None:
    await node.take_up(manifest())
    assert [node.look_later(), node.look_later()] == [0, 1]
