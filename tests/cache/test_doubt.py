"""Files that look changed where the hub has no catalog and no MD5: they come again from the hub,
and where it does not give them they are used as they are, which is said."""

import os
from pathlib import Path

import pytest

from reconciler.cache.audit import Audited, audit
from reconciler.cache.inventory import inventory
from reconciler.cache.layout import Layout
from reconciler.cache.model_cache import ModelCache
from reconciler.cache.news import FileDoubted
from reconciler.cache.stamps import Proof
from reconciler.errors import Transient
from tests.cache.caches import BIG, opened
from tests.cache.specs import CountingStore, put, spec
from tests.cache.test_mend import rot

KEY = "gguf/org_name/x.gguf"


@pytest.fixture
def store(tmp_path: Path) -> CountingStore:
    put(tmp_path / "hub", KEY, BIG)
    return CountingStore(tmp_path / "hub")


@pytest.fixture
def cache(tmp_path: Path, store: CountingStore) -> ModelCache:
    cache = opened(tmp_path, store)
    cache.fetch(spec())
    store.read_keys.clear()
    return cache


def file_of(cache: ModelCache) -> Path:
    found = cache.lookup(spec())
    assert found is not None
    return Path(found.path)


def news(cache: ModelCache) -> list[str]:
    found = cache.keeper.take_news()
    assert all(isinstance(each, FileDoubted) for each in found)
    return [each.reason for each in found]


def told(cache: ModelCache) -> list[str]:
    """What becomes of each."""
    return [each.rpartition("; ")[2] for each in news(cache)]


def audited(tmp_path: Path) -> Audited:
    layout = Layout(tmp_path / "models")
    (found,) = audit(layout, inventory(layout), lambda _: None)
    return found


def test_one_that_was_written_to_comes_again_from_the_hub(
    cache: ModelCache, store: CountingStore
) -> None:
    path = file_of(cache)
    rot(path)
    assert cache.lookup(spec()) is None

    found = cache.fetch(spec())

    assert path.read_bytes() == BIG
    assert store.read_keys == [KEY]
    assert told(cache) == ["it is fetched again"]
    assert cache.lookup(spec()) == found
    assert cache.fetch(spec()) == found
    assert store.read_keys == [KEY]


def test_only_the_doubtful_file_comes_again(tmp_path: Path, store: CountingStore) -> None:
    put(tmp_path / "hub", "huggingface/org_name/config.json", b"{}")
    put(tmp_path / "hub", "huggingface/org_name/model.safetensors", BIG)
    wanted = spec("huggingface/org_name")
    cache = opened(tmp_path, store)
    root = Path(cache.fetch(wanted).root)
    store.read_keys.clear()
    os.utime(root / "config.json", (0, 0))

    cache.fetch(wanted)

    assert store.read_keys == ["huggingface/org_name/config.json"]


def test_it_is_told_once_however_often_the_fetch_fails(
    cache: ModelCache, store: CountingStore
) -> None:
    path = file_of(cache)
    rot(path)
    for _ in range(2):
        store.listed = 0
        with pytest.raises(Transient, match="no longer wanted"):
            cache.fetch(spec(), cancelled=lambda: store.listed > 0)

    assert told(cache) == ["it is fetched again"]
    assert path.read_bytes() != BIG
    cache.fetch(spec())
    assert path.read_bytes() == BIG


def test_with_the_hub_away_it_is_used_as_it_is_and_that_is_said(
    cache: ModelCache, tmp_path: Path
) -> None:
    """gpustack#2519 (scenario 80): a touched file is no reason for an outage."""
    path = file_of(cache)
    os.utime(path, (0, 0))
    away = (tmp_path / "hub").rename(tmp_path / "away")

    found = cache.fetch(spec())

    assert found.path == str(path)
    assert cache.lookup(spec()) == found
    again, used = told(cache)
    assert again == "it is fetched again"
    assert (
        used.startswith("it is used as it is: cannot list gguf/org_name in ") or "mounted" in used
    )
    away.rename(tmp_path / "hub")
    assert audited(tmp_path).proof is Proof.NONE


def test_without_a_hub_it_is_used_as_it_is_and_that_is_said(
    cache: ModelCache, tmp_path: Path
) -> None:
    path = file_of(cache)
    os.utime(path, (0, 0))
    alone = opened(tmp_path, None)

    assert alone.fetch(spec()).path == str(path)

    assert told(alone) == ["it is used as it is: no hub is set"]
    assert alone.lookup(spec()) is not None


def test_where_the_hub_holds_another_file_now_it_is_no_reason_to_take_that(
    cache: ModelCache, tmp_path: Path
) -> None:
    path = file_of(cache)
    before = cache.lookup(spec())
    os.utime(path, (0, 0))
    put(tmp_path / "hub", KEY, BIG[::-1])

    assert cache.fetch(spec()) == before

    assert "it is used as it is: cannot fetch gguf/org_name/x.gguf: the hub" in news(cache)[-1]
    assert path.read_bytes() == BIG


def test_a_reading_of_all_does_not_take_it_for_right(cache: ModelCache, tmp_path: Path) -> None:
    path = file_of(cache)
    rot(path)

    for _ in range(2):
        found = audited(tmp_path)
        assert found.proof is Proof.NONE
        assert found.fault is not None

    cache.fetch(spec())
    assert path.read_bytes() == BIG
    assert audited(tmp_path).fault is None


def test_what_was_used_as_it_is_comes_again_once_somebody_has_all_read(
    cache: ModelCache, tmp_path: Path, store: CountingStore
) -> None:
    path = file_of(cache)
    rot(path)
    opened(tmp_path, None).fetch(spec())
    assert path.read_bytes() != BIG
    audited(tmp_path)

    cache.fetch(spec())

    assert path.read_bytes() == BIG


def test_another_revision_does_not_share_what_was_used_as_it_is(
    cache: ModelCache, tmp_path: Path
) -> None:
    path = file_of(cache)
    rot(path)
    opened(tmp_path, None).fetch(spec())
    put(tmp_path / "hub", "gguf/org_name/chat.jinja", b"{{ x }}")

    cache.refresh(spec())

    found = cache.lookup(spec())
    assert found is not None
    assert Path(found.path).read_bytes() == BIG
