"""What the cache takes of the disk is known without a look at it."""

import os
from pathlib import Path

import pytest

from reconciler.cache.layout import Layout
from reconciler.cache.partial import open_partial
from reconciler.cache.record import RecordedObject
from reconciler.cache.store import Store
from reconciler.cache.usage import Usage
from reconciler.errors import Transient
from reconciler.hub.directory import DirectoryStore
from tests.cache.caches import BIG, opened
from tests.cache.specs import put, spec


def on_disk(tmp_path: Path) -> int:
    """The blocks of all files below the models folder, each file once."""
    files = [os.lstat(path) for path in (tmp_path / "models").rglob("*") if not path.is_dir()]
    return sum({each.st_ino: each.st_blocks * 512 for each in files}.values())


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    for name in ("config.json", "model.safetensors", "chat_template.jinja"):
        put(tmp_path / "hub", f"huggingface/org_name/{name}", BIG)
    put(tmp_path / "hub", "gguf/org_name/x.gguf", BIG)
    return DirectoryStore(tmp_path / "hub")


def test_what_was_fetched_is_counted(tmp_path: Path, store: DirectoryStore) -> None:
    cache = opened(tmp_path, store)
    assert cache.used_bytes == 0
    for number, source in enumerate(("gguf/org_name", "huggingface/org_name")):
        cache.fetch(spec(source))
        assert cache.used_bytes >= len(BIG) * (1, 4)[number]
        assert cache.used_bytes == pytest.approx(on_disk(tmp_path), abs=4096)  # and the links
    assert opened(tmp_path, None).used_bytes == cache.used_bytes


def test_what_revisions_share_is_counted_once(tmp_path: Path, store: DirectoryStore) -> None:
    cache = opened(tmp_path, store)
    wanted = spec("huggingface/org_name")
    cache.fetch(wanted)
    put(tmp_path / "hub", "huggingface/org_name/chat_template.jinja", b"new")
    (tmp_path / "models/huggingface/org_name/config.json").unlink()
    cache.refresh(wanted)
    assert len(list((tmp_path / "models").rglob("model.safetensors"))) == 2
    assert 4 * len(BIG) > cache.used_bytes >= 3 * len(BIG)
    assert opened(tmp_path, None).used_bytes == cache.used_bytes


def test_what_a_failed_fetch_left_is_counted(tmp_path: Path, hub: tuple[Path, Store]) -> None:
    folder, store = hub
    put(folder, "gguf/org_name/x.gguf", BIG * 8)
    cache = opened(tmp_path, store)
    told: list[int] = []
    with pytest.raises(Transient):
        cache.fetch(
            spec(),
            on_progress=lambda done, _total: told.append(done),
            cancelled=lambda: len(told) > 1,
        )
    assert told[-1] > 0
    assert cache.used_bytes == pytest.approx(on_disk(tmp_path), abs=4096)


def test_a_partial_file_is_counted_while_it_grows(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    layout.partials.mkdir()
    usage = Usage(layout)
    item = RecordedObject(path="x.gguf", key="x.gguf", size_bytes=1, version="1")
    with open_partial(layout.partials, item) as partial:
        os.write(partial.fd, BIG)
        os.fsync(partial.fd)
        usage.keep_up("gguf/org_name")
        assert usage.bytes >= len(BIG)
        os.write(partial.fd, BIG)
        os.fsync(partial.fd)
        usage.keep_up("gguf/org_name")  # it was measured just now
        assert usage.bytes < 2 * len(BIG)
    usage.measure_prefix("gguf/org_name")
    assert usage.bytes == 0


def test_a_folder_of_somebody_else_is_not_the_caches(tmp_path: Path) -> None:
    put(tmp_path / "models", "gguf/org_name/x.gguf", BIG)
    cache = opened(tmp_path, None)
    assert cache.lookup(spec()) is not None
    assert cache.used_bytes == 0
