"""Which models could make room for a download that is refused, on real files and small disks."""

import os
from pathlib import Path

import pytest

from reconciler.cache.model_cache import ModelCache
from reconciler.cache.pins import pins_of
from reconciler.errors import NoRoom
from reconciler.hub.directory import DirectoryStore
from reconciler.plan.desired import ModelSpec
from tests.cache.rooms import MIB, NODE_B, cache_of, evicted, pin, push
from tests.cache.specs import put, spec

SHARDS = tuple(f"x-0000{number}-of-00002.gguf" for number in (1, 2))


def enough_from(cache: ModelCache, wanted: ModelSpec) -> frozenset[str]:
    with pytest.raises(NoRoom) as refusal:
        cache.fetch(wanted)
    return refusal.value.enough_from


def test_a_model_that_alone_needs_enough_could_make_the_room(tmp_path: Path) -> None:
    """Others could not: what they need is too little, or others need it, too."""
    hub = tmp_path / "hub"
    cache = cache_of(tmp_path, DirectoryStore(hub), 5.5)
    large, small = push(hub, "o_large", *SHARDS), push(hub, "o_small")
    shared, new = push(hub, "o_shared", *SHARDS), push(hub, "o_new", *SHARDS)
    for source in (large, small, shared):
        cache.fetch(spec(source))
    pin(cache, large=large, small=small, one=shared, two=shared)

    assert enough_from(cache, spec(new)) == {"large"}
    assert evicted(cache) == []

    pin(cache, small=small, one=shared, two=shared)
    assert cache.fetch(spec(new)).size_bytes == 2 * MIB
    assert [gone.prefix for gone in evicted(cache)] == [large]


def test_what_another_agent_needs_stays_whatever_its_models_are_called(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    cache = cache_of(tmp_path, DirectoryStore(hub), 1.5)
    other = cache_of(tmp_path, DirectoryStore(hub), owner=NODE_B)
    old, new = push(hub, "o_old"), push(hub, "o_new")
    cache.fetch(spec(old))
    pin(cache, chat=old)
    assert enough_from(cache, spec(new)) == {"chat"}

    pin(other, chat=old)

    assert enough_from(cache, spec(new)) == frozenset()


def test_what_the_model_needs_anyhow_makes_no_room(tmp_path: Path) -> None:
    """A part of an older push that a fetch might go on from stays, though it gives up the rest."""
    hub = tmp_path / "hub"
    cache = cache_of(tmp_path, DirectoryStore(hub), 2.5)
    old, source = push(hub, "o_old"), push(hub, "o_new", *SHARDS)
    Path(cache.fetch(spec(source)).path).unlink()
    cache.fetch(spec(old))
    push(hub, "o_new", *SHARDS)
    wanted = spec(source)
    running = ("chat", cache.needed(spec(old)))
    cache.keeper.pin(pins_of([running, ("chat", cache.needed(wanted))]))

    assert enough_from(cache, wanted) == frozenset()


def test_a_newer_push_could_take_the_place_of_the_old_one(tmp_path: Path) -> None:
    """Once that is retired, and what ran with it is gone."""
    hub = tmp_path / "hub"
    cache = cache_of(tmp_path, DirectoryStore(hub), 1.5)
    source = push(hub, "o_a")
    old = cache.fetch(spec(source))
    held = cache.needed(spec(source))
    pin(cache, chat=source)
    push(hub, "o_a")
    newer = cache.newer_push(spec(source))
    assert newer is not None

    with pytest.raises(NoRoom) as refusal:
        cache.refresh(spec(source))

    assert refusal.value.enough_from == {"chat"}
    assert cache.lookup(spec(source)) == old
    cache.retire(spec(source), keep=newer.digest)
    cache.keeper.pin(pins_of([("chat", (*held, *cache.needed(spec(source))))]))
    assert enough_from(cache, spec(source)) == {"chat"}
    pin(cache, chat=source)
    assert cache.fetch(spec(source)).digest == newer.digest
    assert [gone.digest for gone in evicted(cache)] == [held[0].digest]


def test_a_small_disk_counts_like_a_budget(tmp_path: Path, small_disk: Path) -> None:
    """What has another name outside the cache frees nothing."""
    hub = tmp_path / "hub"
    cache = cache_of(tmp_path, DirectoryStore(hub))
    old, linked, new = push(hub, "o_old"), push(hub, "o_linked"), push(hub, "o_new")
    cache.fetch(spec(old))
    os.link(cache.fetch(spec(linked)).path, small_disk / "somebody-elses")
    pin(cache, old=old, linked=linked)
    put(hub, f"{new}/x.gguf", os.urandom(2 * MIB))

    assert enough_from(cache, spec(new)) == {"old"}

    pin(cache, linked=linked)
    assert cache.fetch(spec(new)).size_bytes == 2 * MIB
