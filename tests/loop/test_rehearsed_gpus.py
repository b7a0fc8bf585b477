"""Which GPUs a plan tells is what models then get, whatever comes free in the meantime."""

import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from random import Random

import pytest

from reconciler.plan.actions import Action
from reconciler.plan.changes import Planned
from tests.backend.build import llama_server
from tests.loop.candidates import OF_GPUS, SOURCES, Candidates
from tests.loop.delayed import Pace
from tests.loop.test_rehearsals import GIB, as_planned, content
from tests.loop.whole import Node, node_of
from tests.plan.gpu import nvidia

SEEDS = [int(os.environ["XGEN_TEST_SEED"])] if "XGEN_TEST_SEED" in os.environ else [3, 4, 5]


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    devices = tuple(nvidia(bus, memory_total_bytes=24 * GIB) for bus in (1, 2, 3, 4))
    async with node_of(tmp_path, devices, (llama_server(kind="cuda"),)) as made:
        for number, source in enumerate(SOURCES):
            made.push(source, content(layers=8 * (1 + number % 5)))
        yield made


def moves(order: Iterable[Planned]) -> dict[str, list[tuple[str, tuple[str, ...]]]]:
    """Starts and stops of each model, with the GPUs."""
    found: dict[str, list[tuple[str, tuple[str, ...]]]] = {}
    for each in order:
        if each.kind != "FetchFiles":
            found.setdefault(each.model, []).append((each.kind, tuple(each.gpus)))
    return found


def planned(actions: Iterable[Action]) -> list[Planned]:
    return [as_planned(action, set()) for action in actions]


@pytest.mark.parametrize("changes", [60, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("seed", SEEDS)
async def test_models_get_the_gpus_that_were_told_however_long_others_take_to_leave(
    node: Node, seed: int, changes: int
) -> None:
    random = Random(seed)
    candidates = Candidates(random, edits=OF_GPUS, removals=0.4)
    node.take_up(candidates.text)
    await node.until_at_rest()
    taken = 0
    while taken < changes:
        text = candidates.next()
        told = await node.rehearsals.rehearse({"models.yaml": text.encode()})
        if told.changes is None:  # two models claim one GPU, say
            candidates.undo()
            continue

        node.effects.pace = Pace(random)
        node.take_up(text)
        begun = await node.until_at_rest()

        assert moves(told.changes.order) == moves(planned(begun)), (seed, taken, text)
        taken += 1
