"""Room for downloads: budgets, pins, what goes and what is refused, on real files and hubs."""

import contextlib
import os
import threading
from pathlib import Path

import pytest

from reconciler.cache.inventory import inventory
from reconciler.cache.layout import Layout
from reconciler.cache.model_cache import ModelCache
from reconciler.cache.pin_board import Owner
from reconciler.cache.pins import pins_of
from reconciler.cache.store import Store
from reconciler.errors import Transient
from reconciler.hub.directory import DirectoryStore
from reconciler.plan.observed import FilesCached
from tests.cache.rooms import MIB, NODE_A, NODE_B, cache_of, evicted, is_noted, pin, push
from tests.cache.specs import CountingStore, put, spec


def test_a_download_evicts_what_was_used_least_recently(
    tmp_path: Path, hub: tuple[Path, Store]
) -> None:
    """kserve#6137 (scenario 33): a limit that is declared and never read."""
    folder, store = hub
    cache = cache_of(tmp_path, store, 2.5)
    old, recent, new = (push(folder, name) for name in ("o_a", "o_b", "o_c"))
    cache.fetch(spec(recent))
    cache.fetch(spec(old))
    pin(cache, recent=recent, old=old)
    pin(cache, recent=recent)  # old was used until now
    pin(cache)  # and recent until a moment later

    cache.fetch(spec(new))

    (gone,) = evicted(cache)
    assert (gone.prefix, gone.files, gone.size_bytes) == (old, 1, MIB)
    assert gone.why == "gguf/o_c needs 1.0 MiB"
    assert cache.lookup(spec(old)) is None
    assert cache.lookup(spec(recent)) is not None
    assert cache.lookup(spec(new)) is not None
    assert not os.path.lexists(tmp_path / "models" / old)
    assert not list((tmp_path / "models/.rev" / old).glob("[0-9a-f]*"))
    assert cache.used_bytes <= 2.5 * MIB


def test_what_was_used_last_is_known_after_a_restart(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "hub")
    first, second, third = (push(tmp_path / "hub", name) for name in ("o_a", "o_b", "o_c"))
    cache = cache_of(tmp_path, store)
    cache.fetch(spec(first))
    cache.fetch(spec(second))
    pin(cache, a=first, b=second)
    pin(cache, a=first)
    again = cache_of(tmp_path, store, 2.5)
    pin(again)  # first is given up only now, second was before

    again.fetch(spec(third))

    assert [gone.prefix for gone in evicted(again)] == [second]


def test_pinned_files_stay_and_the_refusal_has_the_numbers(tmp_path: Path) -> None:
    """Nothing is read from the hub, nothing else goes, and what is here is served on."""
    store = CountingStore(tmp_path / "hub")
    cache = cache_of(tmp_path, store, 2.5)
    a, b, new = (push(tmp_path / "hub", name) for name in ("o_a", "o_b", "o_new"))
    cache.fetch(spec(a))
    cache.fetch(spec(b))
    pin(cache, chat=a, embed=b)
    before = list(store.read_keys)

    with pytest.raises(Transient, match=r"1\.0 MiB are needed and .* are free in ") as refusal:
        cache.fetch(spec(new))

    assert "the cache has 2.0 MiB of its 2.5 MiB; nothing can be evicted" in str(refusal.value)
    assert "pinned by chat (1.0 MiB), embed (1.0 MiB)" in str(refusal.value)
    assert store.read_keys == before
    assert cache.keeper.take_news() == ()
    pin(cache, chat=a)
    assert cache.fetch(spec(new)).size_bytes == MIB


def test_nothing_goes_where_even_all_of_it_would_be_too_little(tmp_path: Path) -> None:
    cache = cache_of(tmp_path, DirectoryStore(tmp_path / "hub"), 2.5)
    small = push(tmp_path / "hub", "o_small")
    large = push(tmp_path / "hub", "o_large", *(f"x-0000{n}-of-00003.gguf" for n in (1, 2, 3)))
    cache.fetch(spec(small))

    with pytest.raises(Transient, match=r"1\.0 MiB can be evicted"):
        cache.fetch(spec(large))

    assert cache.lookup(spec(small)) is not None


def test_what_another_agent_of_the_folder_needs_stays(tmp_path: Path) -> None:
    """Two agents on one cache directory do not take each other's files."""
    store = DirectoryStore(tmp_path / "hub")
    theirs, ours, new = (push(tmp_path / "hub", name) for name in ("o_a", "o_b", "o_c"))
    other = cache_of(tmp_path, store, owner=NODE_B)
    other.fetch(spec(theirs))
    pin(other, theirs=theirs)
    cache = cache_of(tmp_path, store, 2.5)
    cache.fetch(spec(ours))
    pin(cache)

    cache.fetch(spec(new))

    assert [gone.prefix for gone in evicted(cache)] == [ours]
    assert other.lookup(spec(theirs)) is not None


def test_two_agents_that_fetch_and_evict_at_once_spoil_nothing(tmp_path: Path) -> None:
    """Each needs one model after another, of which hardly two fit; what it needs is whole."""
    sources = [push(tmp_path / "hub", f"o_{number}") for number in range(4)]
    contents = {each: (tmp_path / "hub" / each / "x.gguf").read_bytes() for each in sources}
    wrong: list[str] = []

    def work(owner: Owner, order: list[str]) -> None:
        cache = cache_of(tmp_path, DirectoryStore(tmp_path / "hub"), 2.5, owner)
        for source in order:
            pin(cache, m=source)
            while (found := _fetched(cache, source)) is None:
                pass  # the other one evicts what this one was about to need, or holds the room
            pin(cache, m=source)
            again = cache.lookup(spec(source))
            if again is not None and Path(found.path).read_bytes() != contents[source]:
                wrong.append(source)
        pin(cache)

    threads = [
        threading.Thread(target=work, args=(owner, order * 3))
        for owner, order in ((NODE_A, sources), (NODE_B, sources[::-1]))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)

    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []
    cache = cache_of(tmp_path, None)
    assert cache.used_bytes <= 2.5 * MIB
    for source in sources:
        found = cache.lookup(spec(source))
        assert found is None or Path(found.path).read_bytes() == contents[source]


def _fetched(cache: ModelCache, source: str) -> FilesCached | None:
    try:
        return cache.fetch(spec(source))
    except Transient:
        return None


def test_what_cannot_be_noted_on_a_full_disk_stays_all_the_same(
    tmp_path: Path, small_disk: Path
) -> None:
    a, b, new = (push(tmp_path / "hub", name) for name in ("o_a", "o_b", "o_c"))
    cache = cache_of(tmp_path, DirectoryStore(tmp_path / "hub"))
    cache.fetch(spec(a))
    cache.fetch(spec(b))
    pin(cache, b=b)
    with contextlib.suppress(OSError):
        (small_disk / "somebody-else").write_bytes(bytes(4 * MIB))
    pin(cache, a=a)
    assert not is_noted(cache)

    with pytest.raises(Transient, match="No space left on device"):
        cache.fetch(spec(new))

    assert [gone.prefix for gone in evicted(cache)] == [b]
    pin(cache, a=a)
    assert is_noted(cache)
    (small_disk / "somebody-else").unlink()
    cache.fetch(spec(new))
    assert cache.lookup(spec(a)) is not None


def test_an_agent_that_is_gone_for_long_needs_nothing(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "hub")
    theirs, new = push(tmp_path / "hub", "o_a"), push(tmp_path / "hub", "o_b")
    other = cache_of(tmp_path, store, owner=NODE_B)
    other.fetch(spec(theirs))
    pin(other, theirs=theirs)
    said = tmp_path / "models/.use" / f"{NODE_B.key}.json"
    os.utime(said, (0, said.stat().st_mtime - 8 * 86400))
    cache = cache_of(tmp_path, store, 1.5)

    cache.fetch(spec(new))

    assert [gone.prefix for gone in evicted(cache)] == [theirs]


def test_a_newer_push_takes_the_place_of_the_old_one(
    tmp_path: Path, hub: tuple[Path, Store]
) -> None:
    """What the two share is neither fetched nor counted twice; the rest of the old one goes."""
    folder, store = hub
    source = push(folder, "o_a", "x-00001-of-00002.gguf", "x-00002-of-00002.gguf")
    cache = cache_of(tmp_path, store, 2.5)
    old = cache.fetch(spec(source))
    put(folder, f"{source}/x-00002-of-00002.gguf", os.urandom(MIB))
    pin(cache)

    cache.refresh(spec(source))

    new = cache.lookup(spec(source))
    assert new is not None
    assert new.digest != old.digest
    assert [gone.size_bytes for gone in evicted(cache)] == [MIB]
    assert os.stat(new.path).st_nlink == 1
    assert 2 * MIB <= cache.used_bytes < 2.1 * MIB


def test_of_several_models_in_a_prefix_only_the_unneeded_ones_go(tmp_path: Path) -> None:
    source = push(tmp_path / "hub", "o_a", "q4.gguf", "q5.gguf", "q8.gguf")
    cache = cache_of(tmp_path, DirectoryStore(tmp_path / "hub"), 2.5)
    for name in ("q4.gguf", "q5.gguf"):
        cache.fetch(spec(source, file=name))
    cache.keeper.pin(pins_of([("m", cache.needed(spec(source, file="q5.gguf")))]))

    cache.fetch(spec(source, file="q8.gguf"))

    assert cache.lookup(spec(source, file="q4.gguf")) is None
    assert cache.lookup(spec(source, file="q5.gguf")) is not None
    assert cache.lookup(spec(source, file="q8.gguf")) is not None
    assert [(gone.prefix, gone.files) for gone in evicted(cache)] == [(source, 1)]


def test_what_a_download_still_writes_counts_for_the_next_one(tmp_path: Path) -> None:
    first = push(tmp_path / "hub", "o_a", "x-00001-of-00002.gguf", "x-00002-of-00002.gguf")
    second = push(tmp_path / "hub", "o_b")
    cache = cache_of(tmp_path, DirectoryStore(tmp_path / "hub"), 2.5)
    refusals: list[str] = []

    def another(_done: int, _total: int) -> None:
        if not refusals and list((tmp_path / "models/.partial").glob("[0-9a-f]*")):
            with pytest.raises(Transient) as refusal:
                cache.fetch(spec(second))
            refusals.append(str(refusal.value))

    cache.fetch(spec(first), on_progress=another)

    assert "cannot fetch gguf/o_b: 1.0 MiB are needed" in refusals[0]
    assert cache.lookup(spec(first)) is not None


def test_what_was_cut_off_goes_when_nothing_else_can(tmp_path: Path) -> None:
    """And not before: it saves the bytes of a model that is still wanted."""
    first, second = push(tmp_path / "hub", "o_a"), push(tmp_path / "hub", "o_b")
    cache = cache_of(tmp_path, DirectoryStore(tmp_path / "hub"), 2.5)
    cache.fetch(spec(first))
    left = put(tmp_path / "models", ".partial/of-a-dead-process", os.urandom(MIB))

    cache.fetch(spec(second))

    assert left.is_file()
    assert [gone.prefix for gone in evicted(cache)] == [first]
    pin(cache, m=second)
    cache.fetch(spec(first))
    assert not left.is_file()


def test_a_disk_below_its_headroom_still_takes_what_needs_nothing(
    tmp_path: Path, small_disk: Path
) -> None:
    source = push(tmp_path / "hub", "o_a", "x.gguf", "y.gguf")
    cache = cache_of(tmp_path, DirectoryStore(tmp_path / "hub"))
    cache.fetch(spec(source, file="x.gguf"))
    push(tmp_path / "hub", "o_a", "y.gguf")
    (small_disk / "somebody-else").write_bytes(bytes(int(2.8 * MIB)))

    cache.refresh(spec(source, file="x.gguf"))

    found = cache.lookup(spec(source, file="x.gguf"))
    assert found is not None
    assert os.stat(found.path).st_nlink == 2


def test_a_folder_that_was_taken_in_keeps_what_the_hub_does_not_have(tmp_path: Path) -> None:
    """gpustack#2061 (scenario 34) the other way round: what is not ours is not deleted."""
    source, new = push(tmp_path / "hub", "o_a"), push(tmp_path / "hub", "o_b")
    put(
        tmp_path / "models", f"{source}/x.gguf", (tmp_path / "hub" / source / "x.gguf").read_bytes()
    )
    put(tmp_path / "models", f"{source}/notes.txt", b"mine")
    cache = cache_of(tmp_path, DirectoryStore(tmp_path / "hub"), 1.5)
    cache.fetch(spec(source))

    cache.fetch(spec(new))

    assert [gone.prefix for gone in evicted(cache)] == [source]
    (kept,) = (tmp_path / "models/.rev" / source).glob("*.kept/notes.txt")
    assert kept.read_bytes() == b"mine"
    (left,) = (each for each in inventory(Layout(tmp_path / "models")) if each.prefix == source)
    assert (left.is_only_kept, left.kept_bytes > 0) == (True, True)


def test_files_used_in_place_and_an_operators_link_are_never_touched(tmp_path: Path) -> None:
    mine = put(tmp_path, "elsewhere/x.gguf", os.urandom(MIB))
    (tmp_path / "models/gguf").mkdir(parents=True)
    (tmp_path / "models/gguf/o_linked").symlink_to(mine.parent)
    cache = cache_of(tmp_path, DirectoryStore(tmp_path / "hub"), 1.2)
    first, second = push(tmp_path / "hub", "o_a"), push(tmp_path / "hub", "o_b")
    assert cache.fetch(spec(f"file://{mine}")).size_bytes == MIB

    for source in (first, second):
        cache.fetch(spec(source))

    assert mine.is_file()
    assert (tmp_path / "models/gguf/o_linked").is_symlink()
    assert [gone.prefix for gone in evicted(cache)] == [first]


def test_a_small_disk_makes_room_and_recovers_when_it_fills_up_midway(
    tmp_path: Path, hub: tuple[Path, Store], small_disk: Path
) -> None:
    """Without a budget the disk is the limit. Full in mid-download, the next try is the cure."""
    folder, store = hub
    a, b, c = (push(folder, name) for name in ("o_a", "o_b", "o_c"))
    cache = cache_of(tmp_path, store)
    for source in (a, b):
        cache.fetch(spec(source))
    pin(cache, b=b)
    (small_disk / "somebody-else").write_bytes(bytes(MIB))

    def fill_up(done: int, _total: int) -> None:
        if done:
            with contextlib.suppress(OSError):  # the disk is full: as it should be
                (small_disk / "somebody-else").write_bytes(bytes(4 * MIB))

    with pytest.raises(Transient, match=r"are needed and .* are free in"):
        cache.fetch(spec(c), on_progress=fill_up)

    assert cache.lookup(spec(b)) is not None
    assert [gone.prefix for gone in evicted(cache)] == [a]
    (small_disk / "somebody-else").unlink()
    assert cache.fetch(spec(c)).size_bytes == MIB
    assert cache.lookup(spec(b)) is not None


def test_an_eviction_that_was_cut_off_is_finished_at_the_next_start(tmp_path: Path) -> None:
    source = push(tmp_path / "hub", "o_a")
    cache = cache_of(tmp_path, DirectoryStore(tmp_path / "hub"))
    files = cache.fetch(spec(source))
    folder = Path(files.root)
    folder.with_suffix(".json").unlink()
    folder.with_suffix(".stamps").unlink()
    folder.rename(folder.with_name(f"{folder.name}.evicted"))

    again = cache_of(tmp_path, DirectoryStore(tmp_path / "hub"))

    assert not list(folder.parent.glob("*.evicted"))
    assert again.used_bytes == 0


def test_a_cache_over_its_budget_is_only_reported(tmp_path: Path) -> None:
    source = push(tmp_path / "hub", "o_a")
    cache_of(tmp_path, DirectoryStore(tmp_path / "hub")).fetch(spec(source))

    cache = cache_of(tmp_path, DirectoryStore(tmp_path / "hub"), 0.5)

    said = cache.keeper.over_budget()
    assert said is not None
    assert "the cache has 1.0 MiB, its budget is 512.0 KiB" in said
    assert cache.lookup(spec(source)) is not None
