"""What the hub holds, on a directory and on real S3 servers; asked with a limit, and not often."""

import asyncio
import socket
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from reconciler.cache.model_cache import ModelCache
from reconciler.errors import Rejected, Transient
from reconciler.hub.catalog import CATALOG, push_key
from reconciler.hub.directory_writer import DirectoryWriter
from reconciler.hub.s3_settings import S3Settings
from reconciler.hub.s3_writer import S3Writer
from reconciler.hub.writable import WritableHub
from reconciler.node.hub_models import HubModels
from reconciler.plan.ids import NodeName
from tests.cache.specs import spec
from tests.hub.hubs import Hub, hub, reader, servers
from tests.hub.test_push import PREFIX, folder_of, pushed

__all__ = ["hub", "servers"]


def cache_of(folder: Path, hub: Hub | None = None) -> ModelCache:
    """With the model of the prefix, where there is a hub."""
    cache = ModelCache(folder / "models", None)
    if hub is not None:
        with reader(hub) as store:
            cache = ModelCache(folder / "models", store)
            cache.open()
            cache.fetch(spec(PREFIX))
    return cache


def models_of(hub: WritableHub | None, cache: ModelCache, **seconds: float) -> HubModels:
    return HubModels(hub, cache=cache, node=NodeName("node-a"), **seconds)


def rows(listing: Mapping[str, object]) -> dict[str, dict[str, Any]]:
    return {row["prefix"]: row for row in cast(list[dict[str, Any]], listing["models"])}


async def test_every_prefix_is_told_and_whether_it_is_here(hub: Hub, tmp_path: Path) -> None:
    catalog = pushed(
        hub, folder_of(tmp_path, {"model.gguf": b"weights"}), licence="mit", upstream="org/model"
    ).catalog
    hub.writer.save("gguf/other_tool", "x.gguf", b"123")
    hub.writer.save("gguf/under_way", push_key("0" * 64), b"")
    pushed(hub, folder_of(tmp_path, {"x.gguf": b"1"}, "damaged"), "gguf/zz_damaged")
    hub.writer.save("gguf/zz_damaged", CATALOG, b"{")
    cache = await asyncio.to_thread(cache_of, tmp_path, hub)
    models = models_of(hub.writer, cache)

    listing = await models.listing()

    found = rows(listing)
    assert listing["hub"] == hub.writer.location
    assert list(found) == [PREFIX, "gguf/other_tool", "gguf/under_way", "gguf/zz_damaged"]
    assert {prefix: row["state"] for prefix, row in found.items()} == {
        PREFIX: "verified",
        "gguf/other_tool": "unverified",
        "gguf/under_way": "incomplete",
        "gguf/zz_damaged": "damaged",
    }
    row = found[PREFIX]
    assert (row["digest"], row["size_bytes"], row["files"]) == (catalog.digest, 7, 1)
    assert (row["licence"], row["upstream"], row["verified"]) == ("mit", "org/model", True)
    assert [row["nodes"] for row in found.values()] == [["node-a"], [], [], []]
    assert found["gguf/other_tool"]["format"] == "gguf"
    assert "it is damaged" in found["gguf/zz_damaged"]["reason"]
    await models.close()


async def test_it_is_read_anew_after_a_while_only(tmp_path: Path) -> None:
    writer = DirectoryWriter(tmp_path)
    lasting, fresh = (models_of(writer, cache_of(tmp_path), kept_seconds=s) for s in (3600.0, 0.0))
    assert rows(await lasting.listing()) == rows(await fresh.listing()) == {}

    writer.save("gguf/a_b", "x.gguf", b"1")

    assert rows(await lasting.listing()) == {}
    assert list(rows(await fresh.listing())) == ["gguf/a_b"]


async def test_a_hub_that_is_away_is_asked_again(tmp_path: Path) -> None:
    models = models_of(DirectoryWriter(tmp_path / "hub"), cache_of(tmp_path))
    with pytest.raises(Transient, match=r"cannot .* No such file"):
        await models.listing()

    (tmp_path / "hub/gguf/a_b").mkdir(parents=True)

    assert list(rows(await models.listing())) == ["gguf/a_b"]


async def test_a_hub_that_does_not_answer_is_not_waited_for(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        writer = S3Writer(
            S3Settings(endpoint=f"http://127.0.0.1:{silent.getsockname()[1]}", bucket="models")
        )
        models = models_of(writer, cache_of(tmp_path), limit_seconds=0.05)
        for _ in range(2):
            with pytest.raises(Transient, match=r"cannot list .* no answer within 0\.05 s"):
                await models.listing()
        await models.close()
    left = [each for each in threading.enumerate() if each.name == "hub-models"]
    await asyncio.gather(*(asyncio.to_thread(each.join, 30) for each in left))


async def test_without_a_hub_there_is_nothing_to_tell(tmp_path: Path) -> None:
    models = models_of(None, cache_of(tmp_path))
    with pytest.raises(Rejected, match="no hub is set; give --hub"):
        await models.listing()
    await models.close()
