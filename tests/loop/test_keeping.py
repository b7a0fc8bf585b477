"""Ticks say what must stay in the cache, and what is wrong with its size."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import pytest

from reconciler.apply.backends import BackendView
from reconciler.apply.stop import Hurry
from reconciler.backend.engines import Assessment
from reconciler.backend.model_info import ModelInfo
from reconciler.backend.offer import Offer
from reconciler.cache.budget import Budget
from reconciler.cache.model_cache import ModelCache
from reconciler.cache.pin_board import Owner
from reconciler.hub.directory import DirectoryStore
from reconciler.loop.keeping import Keeping
from reconciler.loop.observation import Look, Seen
from reconciler.loop.offered import Offered
from reconciler.node.board import Board
from reconciler.node.parts import Parts, assembled
from reconciler.plan.desired import Format
from reconciler.plan.ids import Instance, ModelName, NodeName, SpecHash
from reconciler.settings import HubSettings, Settings
from reconciler.status import Status
from tests.backend.build import model as desired
from tests.cache.rooms import cache_of, push
from tests.cache.specs import put, spec
from tests.e2e.agent import MINIMAL_GGUF, llama_server_stand_in
from tests.e2e.manifests import manifest, model
from tests.loop.book_entries import view

NODE = NodeName("node-a")
KEPT, GONE = ModelName("keeps"), ModelName("gone")
OFFER = Offer(
    format=Format.GGUF,
    size_bytes=1 << 20,
    weights_bytes=1 << 20,
    info=ModelInfo(weights_bytes=1 << 20),
)
MIB = 1 << 20
SUSPENDED = "  suspend: true\n"


class Node:
    def __init__(self, parts: Parts, board: Board, folder: Path) -> None:
        self._parts = parts
        self._board = board
        self._folder = folder

    async def tick(self, *models: str, suspended: bool = True) -> None:
        """Take up a manifest of these, and tick."""
        text = manifest(*models, spec=SUSPENDED) if suspended else manifest(*models)
        (self._folder / "manifests/models.yaml").write_text(text)
        self._parts.intent.offer(await self._parts.source.read())
        await self._parts.reconciler.tick()

    def said(self) -> dict[str, list[list[str]]]:
        """Which models need a file of a prefix."""
        key = Owner(node=NODE, data_dir=str(self._folder / "data")).key
        told: Any = json.loads((self._folder / f"models/.use/{key}.json").read_text())
        return {each["prefix"]: list(each["files"].values()) for each in told["pins"]}

    def used(self) -> list[str]:
        """Prefixes that are noted as used once, and not needed now."""
        told: Any = json.loads((self._folder / "models/.use/used.json").read_text())
        return list(told["used"])

    def conditions(self) -> dict[str, str]:
        return {each.type: each.message for each in self._board.current().conditions}


def running(cache: ModelCache, source: str) -> BackendView:
    files = cache.lookup(spec(source))
    assert files is not None
    return view(instance=Instance(spec_hash=SpecHash("1:a"), files_digest=files.digest))


class NodeOf(Protocol):
    def __call__(
        self, budget: Budget | None, *, bytes_per_second: float | None = None
    ) -> AbstractAsyncContextManager[Node]: ...


@pytest.fixture
async def node_of(tmp_path: Path) -> NodeOf:
    """Nodes with two models in their cache."""
    (tmp_path / "manifests").mkdir()
    for name in "ab":
        put(tmp_path / "hub", f"gguf/test_{name}/x.gguf", MINIMAL_GGUF)
        cache = ModelCache(tmp_path / "models", DirectoryStore(tmp_path / "hub"))
        await asyncio.to_thread(cache.fetch, spec(f"gguf/test_{name}"))

    @asynccontextmanager
    async def node(
        budget: Budget | None, *, bytes_per_second: float | None = None
    ) -> AsyncIterator[Node]:
        settings = Settings(
            manifest=str(tmp_path / "manifests"),
            hub=HubSettings(location=str(tmp_path / "hub"), bytes_per_second=bytes_per_second),
            data_dir=tmp_path / "data",
            models_dir=tmp_path / "models",
            cache_budget=budget,
            llama_server=str(llama_server_stand_in(tmp_path)),
            environment=dict(os.environ),
        )
        board = Board(Status(node=NODE))
        async with assembled(settings, NODE, board, Hurry()) as parts:
            yield Node(parts, board, tmp_path)

    return node


async def test_what_is_desired_is_pinned_disabled_or_not(node_of: NodeOf) -> None:
    async with node_of(None) as node:
        await node.tick(
            model("one", source="gguf/test_a"),
            model("two", source="gguf/test_a"),
            model("off", source="gguf/test_b", enabled="false"),
        )
        assert node.said() == {"gguf/test_a": [["one", "two"]], "gguf/test_b": [["off"]]}

        await node.tick(model("one", source="gguf/test_a"))

        assert node.said() == {"gguf/test_a": [["one"]]}
        assert node.used() == ["gguf/test_b"]


async def test_what_the_downloads_of_a_candidate_would_evict(tmp_path: Path) -> None:
    """What it does not name any more may go, and what it keeps may not."""
    cache = cache_of(tmp_path, DirectoryStore(tmp_path / "hub"), 2.5)
    keeps, drops = (push(tmp_path / "hub", name) for name in ("o_a", "o_b"))
    for source in (keeps, drops):
        await asyncio.to_thread(cache.fetch, spec(source))
    looks = {
        name: Look(
            desired=replace(desired(name), spec=spec(source)),
            files=cache.lookup(spec(source)),
            assessment=Assessment(),
            offered=Offered(offer=OFFER if source == "gguf/o_new" else None),
        )
        for name, source in ((KEPT, keeps), (ModelName("new"), "gguf/o_new"))
    }
    seen = Seen(
        views={name: (running(cache, source),) for name, source in ((KEPT, keeps), (GONE, drops))},
        in_flight={},
        leftovers=(),
    )

    found = Keeping(cache).foresee(looks, seen, {})

    assert [(each.prefix, each.size_bytes) for each in found.evicted] == [(drops, MIB)]
    last_good = Keeping(cache).foresee(looks, seen, {GONE: (spec(drops),)})
    assert [each.prefix for each in last_good.unfit] == ["gguf/o_new"]


async def test_a_first_download_is_pinned_from_its_beginning(
    node_of: NodeOf, tmp_path: Path
) -> None:
    put(tmp_path / "hub", "gguf/test_c/x.gguf", bytes(8 * MIB))
    async with node_of(None, bytes_per_second=MIB) as node:
        async with asyncio.timeout(30):
            while not any((tmp_path / "models/.partial").glob("[0-9a-f]*")):
                await node.tick(model("one", source="gguf/test_c"), suspended=False)

        await node.tick(model("one", source="gguf/test_c"), suspended=False)

        assert node.said() == {"gguf/test_c": [["one"]]}


async def test_a_manifest_that_is_not_read_yet_gives_no_pin_up(node_of: NodeOf) -> None:
    """R3: nothing is given up before the first complete read."""
    async with node_of(None) as node:
        await node.tick(model("one", source="gguf/test_a"))
    async with node_of(None) as again:
        assert again.said() == {"gguf/test_a": [["one"]]}


async def test_a_cache_that_is_too_large_is_a_condition(node_of: NodeOf) -> None:
    async with node_of(Budget(size_bytes=1)) as node:
        await node.tick(model("one", source="gguf/test_a"))
        assert "its budget is 1 B" in node.conditions()["CacheInBudget"]
    async with node_of(Budget(size_bytes=2**30)) as node:
        await node.tick(model("one", source="gguf/test_a"))
        assert "CacheInBudget" not in node.conditions()
