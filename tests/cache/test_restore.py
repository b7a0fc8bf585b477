"""A file is lost under a model, and the hub has other content by now: the model stays as it is."""

import shutil
from pathlib import Path

import pytest

from reconciler.cache.audit import audit
from reconciler.cache.inventory import inventory
from reconciler.cache.layout import Layout
from reconciler.cache.store import Store
from reconciler.errors import Transient
from reconciler.hub.directory import DirectoryStore
from tests.cache.caches import BIG, listed, opened
from tests.cache.specs import put, spec
from tests.cache.test_catalogued import PREFIX, pushed
from tests.cache.test_mend import rot

FIRST = {"config.json": b"{}", "model.safetensors": BIG}
SECOND = {"config.json": b"{}", "model.safetensors": BIG[::-1]}


def faults(tmp_path: Path) -> list[str]:
    layout = Layout(tmp_path / "models")
    found = audit(layout, inventory(layout), lambda _: None)
    return [each.fault for each in found if each.fault is not None]


def put_all(folder: Path, files: dict[str, bytes]) -> None:
    for path, content in files.items():
        put(folder, f"{PREFIX}/{path}", content)


def test_a_rotten_file_comes_from_the_push_that_is_here_not_from_a_newer_one(
    tmp_path: Path, hub: tuple[Path, Store]
) -> None:
    folder, store = hub
    pushed(folder, FIRST, source=tmp_path / "v1")
    cache = opened(tmp_path, store)
    before = cache.fetch(spec())
    newer = pushed(folder, SECOND, source=tmp_path / "v2")
    rot(Path(before.root) / "model.safetensors")

    assert cache.fetch(spec()) == cache.lookup(spec()) == before

    assert (Path(before.root) / "model.safetensors").read_bytes() == BIG
    assert faults(tmp_path) == []
    push = cache.newer_push(spec())
    assert push is not None
    assert push.revision == newer.digest


def test_a_lost_file_is_no_reason_for_an_older_push_that_is_here_too(
    tmp_path: Path, hub: tuple[Path, Store]
) -> None:
    folder, store = hub
    pushed(folder, FIRST, source=tmp_path / "v1")
    cache = opened(tmp_path, store)
    cache.fetch(spec())
    pushed(folder, SECOND, source=tmp_path / "v2")
    cache.refresh(spec())
    before = cache.lookup(spec())
    assert before is not None
    (Path(before.root) / "model.safetensors").unlink()

    assert cache.lookup(spec()) is None
    assert cache.fetch(spec()) == before


def test_a_file_that_an_edit_names_comes_from_the_push_that_is_here(
    tmp_path: Path, hub: tuple[Path, Store]
) -> None:
    folder, store = hub
    files = {"x.gguf": b"weights", "chat.jinja": b"first"}
    pushed(folder, files, source=tmp_path / "v1")
    cache = opened(tmp_path, store)
    before = cache.fetch(spec())
    pushed(folder, {"x.gguf": b"others", "chat.jinja": b"second"}, source=tmp_path / "v2")

    after = cache.fetch(spec(extra_args={"chat_template_file": "@/chat.jinja"}))

    assert after.path == before.path
    assert (Path(after.root) / "chat.jinja").read_bytes() == b"first"


def test_a_push_that_the_hub_has_no_more_gives_way_to_what_it_holds(
    tmp_path: Path, hub: tuple[Path, Store]
) -> None:
    folder, store = hub
    pushed(folder, FIRST, source=tmp_path / "v1")
    cache = opened(tmp_path, store)
    before = cache.fetch(spec())
    shutil.rmtree(folder / PREFIX)
    newer = pushed(folder, SECOND, source=tmp_path / "v2")
    rot(Path(before.root) / "model.safetensors")

    after = cache.fetch(spec())

    assert after.revision == newer.digest
    assert (Path(after.root) / "model.safetensors").read_bytes() == BIG[::-1]
    assert faults(tmp_path) == []


def test_while_the_hub_does_not_say_nothing_is_taken_up(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    hub.mkdir()
    pushed(hub, FIRST, source=tmp_path / "v1")
    cache = opened(tmp_path, DirectoryStore(hub))
    before = cache.fetch(spec())
    (Path(before.root) / "model.safetensors").unlink()
    pushed(hub, SECOND, source=tmp_path / "v2")
    hub.rename(tmp_path / "away")

    with pytest.raises(Transient):
        cache.fetch(spec())

    (tmp_path / "away").rename(hub)
    assert cache.fetch(spec()) == before


def test_without_a_catalog_a_lost_file_comes_again_while_the_hub_has_it(
    tmp_path: Path, hub: tuple[Path, Store]
) -> None:
    folder, store = hub
    put_all(folder, FIRST | {"a.json": b"1"})
    cache = opened(tmp_path, store)
    before = cache.fetch(spec())
    put_all(folder, {"a.json": b"22"})
    (Path(before.root) / "model.safetensors").unlink()

    assert cache.fetch(spec()) == cache.fetch(spec(digest=before.revision)) == before

    assert (Path(before.root) / "a.json").read_bytes() == b"1"
    assert (Path(before.root) / "model.safetensors").read_bytes() == BIG
    assert listed(cache, spec()) != before.digest


def test_without_a_catalog_a_lost_file_that_is_another_now_gives_way(
    tmp_path: Path, hub: tuple[Path, Store]
) -> None:
    folder, store = hub
    put_all(folder, FIRST)
    cache = opened(tmp_path, store)
    before = cache.fetch(spec())
    put_all(folder, SECOND)
    (Path(before.root) / "model.safetensors").unlink()

    after = cache.fetch(spec())

    assert after.digest == listed(cache, spec()) != before.digest
    assert (Path(after.root) / "model.safetensors").read_bytes() == BIG[::-1]
    assert faults(tmp_path) == []


def test_bad_files_that_lost_one_are_not_brought_again(
    tmp_path: Path, hub: tuple[Path, Store]
) -> None:
    folder, store = hub
    pushed(folder, FIRST, source=tmp_path / "v1")
    cache = opened(tmp_path, store)
    before = cache.fetch(spec())
    newer = pushed(folder, SECOND, source=tmp_path / "v2")
    (Path(before.root) / "model.safetensors").unlink()
    cache.retire(spec(), keep=listed(cache, spec()))

    assert cache.fetch(spec()).revision == newer.digest
