"""What is foreseen of evictions is what comes: the forecast is held against real downloads."""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.cache.budget import Budget
from reconciler.cache.demand import Demand
from reconciler.cache.foresight import Arrival, Shelf, foresee
from reconciler.cache.inventory import StoredFile, StoredRevision
from reconciler.cache.model_cache import ModelCache
from reconciler.cache.pins import Pins, pins_of
from reconciler.errors import NoRoom
from reconciler.hub.directory import DirectoryStore
from reconciler.plan.evictions import Evictions
from tests.cache.rooms import MIB, NODE_A, NODE_B, cache_of, evicted, pin, push
from tests.cache.specs import put, spec

UNIT = 2**16


def pins(cache: ModelCache, sources: Sequence[str]) -> Pins:
    return pins_of((each, cache.needed(spec(each))) for each in sources)


def of(cache: ModelCache, *coming: str, keep: Sequence[str] = (), mib: float = 1.0) -> Evictions:
    arrivals = [Arrival(prefix=each, size_bytes=int(mib * MIB)) for each in coming]
    return cache.keeper.foresee(arrivals, pins(cache, keep))


def test_nothing_goes_and_the_least_recently_used_is_named_first(tmp_path: Path) -> None:
    cache = cache_of(tmp_path, DirectoryStore(tmp_path / "hub"), 3.5)
    first, second, third = (push(tmp_path / "hub", name) for name in ("o_a", "o_b", "o_c"))
    for source in (second, first, third):
        cache.fetch(spec(source))
    pin(cache, a=first, b=second, c=third)
    pin(cache, b=second, c=third)
    pin(cache, c=third)

    found = of(cache, "gguf/o_x", "gguf/o_y", keep=[third])

    assert [(each.prefix, each.size_bytes) for each in found.evicted] == [
        (first, MIB),
        (second, MIB),
    ]
    assert [each.revision for each in found.evicted] == [
        cache.needed(spec(source))[0].digest for source in (first, second)
    ]
    assert found.unfit == ()
    assert evicted(cache) == []
    assert all(cache.lookup(spec(source)) for source in (first, second, third))


def test_what_finds_no_room_is_told_with_the_numbers_and_evicts_nothing(tmp_path: Path) -> None:
    cache = cache_of(tmp_path, DirectoryStore(tmp_path / "hub"), 2.5)
    kept, other = (push(tmp_path / "hub", name) for name in ("o_a", "o_b"))
    for source in (kept, other):
        cache.fetch(spec(source))

    found = of(cache, "gguf/o_large", keep=[kept], mib=2.0)

    assert found.evicted == ()
    (unfit,) = found.unfit
    assert unfit.prefix == "gguf/o_large"
    assert unfit.reason.startswith("cannot fetch gguf/o_large: 2.0 MiB are needed and ")
    assert "the cache has 2.0 MiB of its 2.5 MiB; 1.0 MiB can be evicted; pinned by" in unfit.reason


def test_what_another_agent_needs_stays_and_what_we_give_up_goes(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "hub")
    theirs, ours = (push(tmp_path / "hub", name) for name in ("o_a", "o_b"))
    other = cache_of(tmp_path, store, owner=NODE_B)
    other.fetch(spec(theirs))
    pin(other, theirs=theirs)
    cache = cache_of(tmp_path, store, 2.5)
    cache.fetch(spec(ours))
    pin(cache, ours=ours)

    assert [each.prefix for each in of(cache, "gguf/o_x").evicted] == [ours]
    assert of(cache, "gguf/o_x", keep=[ours]).evicted == ()


def test_of_a_revision_of_which_a_model_needs_a_part_the_rest_goes_once(tmp_path: Path) -> None:
    cache = cache_of(tmp_path, DirectoryStore(tmp_path / "hub"), 2.5)
    both = push(tmp_path / "hub", "o_a", "kept.gguf", "other.gguf")
    first, second = (push(tmp_path / "hub", name) for name in ("o_b", "o_c"))
    for file in ("kept.gguf", "other.gguf"):
        cache.fetch(spec(both, file=file))
    needed = pins_of([("m", cache.needed(spec(both, file="kept.gguf")))])
    cache.keeper.pin(needed)
    arrivals = [Arrival(prefix=each, size_bytes=MIB) for each in (first, second)]

    found = cache.keeper.foresee(arrivals, needed)

    assert [(each.prefix, each.size_bytes) for each in found.evicted] == [(both, MIB)]
    assert [each.prefix for each in found.unfit] == [second]
    cache.fetch(spec(first))
    assert [(gone.prefix, gone.size_bytes) for gone in evicted(cache)] == [(both, MIB)]
    assert cache.lookup(spec(both, file="kept.gguf")) is not None


def test_without_a_budget_a_large_disk_has_room(tmp_path: Path) -> None:
    cache = cache_of(tmp_path, DirectoryStore(tmp_path / "hub"))
    assert of(cache, "gguf/o_x") == Evictions()


sizes = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@settings(max_examples=30, deadline=None)
@given(
    here=sizes,
    coming=sizes,
    kept=st.sets(st.integers(0, 3)),
    budget=st.integers(2, 12),
)
def test_it_comes_as_foreseen(
    here: list[int], coming: list[int], kept: set[int], budget: int
) -> None:
    """Each download in turn, over a cache of which some must stay."""
    with tempfile.TemporaryDirectory() as folder:
        hub, store = Path(folder, "hub"), DirectoryStore(Path(folder, "hub"))
        old = [_push(hub, f"o_old{n}", size) for n, size in enumerate(here)]
        new = [_push(hub, f"o_new{n}", size) for n, size in enumerate(coming)]
        unbound = ModelCache(Path(folder, "models"), store, owner=NODE_A)
        unbound.open()
        for source in old:
            unbound.fetch(spec(source))
        stay = [source for n, source in enumerate(old) if n in kept]
        cache = ModelCache(
            Path(folder, "models"), store, owner=NODE_A, budget=Budget(size_bytes=budget * UNIT)
        )
        cache.open()
        cache.keeper.pin(pins(cache, stay))
        arrivals = [
            Arrival(prefix=source, size_bytes=size * UNIT)
            for source, size in zip(new, coming, strict=True)
        ]

        foreseen = cache.keeper.foresee(arrivals, pins(cache, stay))

        refused = []
        for source in new:
            try:
                cache.fetch(spec(source))
            except NoRoom:
                refused.append(source)
            else:
                stay.append(source)
                cache.keeper.pin(pins(cache, stay))
        assert [(each.prefix, each.revision, each.size_bytes) for each in foreseen.evicted] == [
            (each.prefix, each.digest, each.size_bytes) for each in evicted(cache)
        ]
        assert [each.prefix for each in foreseen.unfit] == refused


def _push(hub: Path, name: str, size: int) -> str:
    put(hub, f"gguf/{name}/x.gguf", os.urandom(size * UNIT))
    return f"gguf/{name}"


FILE = StoredFile(path="x.gguf", inode=(1, 1), size_bytes=4, links=1)
REVISION = StoredRevision(
    prefix="gguf/o_a",
    digest="d",
    record=None,
    files=(FILE,),
    linked=False,
    written_at=1.0,
    kept_bytes=0,
)
SHELF = Shelf(
    revisions=(REVISION,),
    pins=Pins(),
    uses={},
    demand=Demand(needed=0, promised=0, elsewhere=(), free=100, headroom=0, used=4, budget=10),
    cut_off=0,
    folder="/models",
)


def test_leftovers_of_downloads_go_only_where_nothing_else_makes_room() -> None:
    shelf = replace(SHELF, cut_off=3, demand=replace(SHELF.demand, used=7))
    enough = foresee(shelf, [Arrival(prefix="gguf/o_x", size_bytes=7)])
    assert [each.prefix for each in enough.evicted] == ["gguf/o_a"]
    pinned = replace(shelf, pins=Pins({("gguf/o_a", "d"): {"x.gguf": frozenset({"m"})}}))
    assert foresee(pinned, [Arrival(prefix="gguf/o_x", size_bytes=6)]) == Evictions()
    (unfit,) = foresee(pinned, [Arrival(prefix="gguf/o_x", size_bytes=7)]).unfit
    assert unfit.reason.endswith("nothing can be evicted; pinned by m (4 B)")


def test_what_is_here_already_needs_no_room() -> None:
    full = replace(SHELF, demand=replace(SHELF.demand, used=50))
    assert foresee(full, [Arrival(prefix="gguf/o_x", size_bytes=0)]) == Evictions()


def test_a_full_disk_counts_without_a_budget() -> None:
    demand = replace(SHELF.demand, budget=None, free=3, headroom=1)
    found = foresee(replace(SHELF, demand=demand), [Arrival(prefix="gguf/o_x", size_bytes=5)])
    assert [each.size_bytes for each in found.evicted] == [4]
