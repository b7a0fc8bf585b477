"""What a node is told of a prefix with a catalog, on a directory and on real S3 servers."""

import hashlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.errors import Transient
from reconciler.hub.catalog import CATALOG, catalog_key, push_key
from reconciler.hub.directory import DirectoryStore
from reconciler.hub.directory_writer import DirectoryWriter
from reconciler.hub.objects import HubObject
from reconciler.hub.s3 import S3Store
from tests.hub.hubs import Hub, hub, reader, servers
from tests.hub.reading import read_all
from tests.hub.test_push import PREFIX, folder_of, pushed

__all__ = ["hub", "servers"]

Reader = DirectoryStore | S3Store


@pytest.fixture
def store(hub: Hub) -> Iterator[Reader]:
    with reader(hub) as opened:
        yield opened


def contents(store: Reader, digest: str | None = None) -> dict[str, bytes]:
    """What a node would fetch; the store compares the digests."""
    found = store.objects(PREFIX, digest)
    assert all(item.sha256 is not None for item in found)
    return {item.path: read_all(store, item) for item in found}


def test_a_repush_is_read_from_its_objects(hub: Hub, store: Reader, tmp_path: Path) -> None:
    pushed(hub, folder_of(tmp_path, {"model.gguf": b"first", "a/b.json": b"{}", "gone": b"1"}))
    assert contents(store) == {"a/b.json": b"{}", "gone": b"1", "model.gguf": b"first"}
    second = folder_of(tmp_path, {"model.gguf": b"second", "a/b.json": b"{}"}, "second")
    pushed(hub, second)

    found = store.objects(PREFIX)

    sha256 = hashlib.sha256(b"second").hexdigest()
    assert [(item.path, item.size_bytes) for item in found] == [("a/b.json", 2), ("model.gguf", 6)]
    assert found[1].key.endswith(f"{PREFIX}/.xgen/objects/{sha256}")
    assert (found[1].sha256, found[1].version != "") == (sha256, True)
    assert contents(store) == {"a/b.json": b"{}", "model.gguf": b"second"}


def test_an_older_digest_can_be_read_after_two_pushes(
    hub: Hub, store: Reader, tmp_path: Path
) -> None:
    digests = []
    for number in (b"1", b"2", b"3"):
        folder = folder_of(tmp_path, {"model.gguf": number}, f"push-{number.decode()}")
        digests.append(pushed(hub, folder).catalog.digest)

    assert [contents(store, digest)["model.gguf"] for digest in digests] == [b"1", b"2", b"3"]


def test_a_digest_that_the_hub_has_not_is_answered_with_those_that_it_has(
    hub: Hub, store: Reader, tmp_path: Path
) -> None:
    old = pushed(hub, folder_of(tmp_path, {"model.gguf": b"1"}, "1")).catalog.digest
    new = pushed(hub, folder_of(tmp_path, {"model.gguf": b"2"}, "2")).catalog.digest

    with pytest.raises(Transient) as failed:
        store.objects(PREFIX, "0" * 64)

    assert str(failed.value).endswith(f"does not have it; it has {new} (in force), {old}")


def test_without_a_catalog_there_is_what_lies_at_plain_paths(hub: Hub, store: Reader) -> None:
    hub.writer.save(PREFIX, "model.gguf", b"weights")

    for digest in (None, "0" * 64):
        (item,) = store.objects(PREFIX, digest)
        assert (item.path, item.size_bytes, item.sha256) == ("model.gguf", 7, None)


def test_a_first_push_that_has_not_ended_is_not_there(hub: Hub, store: Reader) -> None:
    hub.writer.save(PREFIX, push_key("0" * 64), b"")
    hub.writer.save(PREFIX, "model.gguf", b"weights")
    hub.writer.save(PREFIX, catalog_key("0" * 64), b"{}")

    assert store.objects(PREFIX) == ()


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda content: content[:-20], r"it is damaged: .*; `xgen-model hub push` writes it anew"),
        (lambda content: b"", "it is damaged: "),
        (lambda content: content.replace(b"model.gguf", b"other.gguf"), "it is damaged: "),
        (
            lambda content: content.replace(b'"catalog": 1', b'"catalog": 2'),
            r"a newer xgen-model wrote it \(version 2\); update; `xgen-model hub push` writes",
        ),
    ],
    ids=["cut", "empty", "changed", "newer"],
)
def test_a_catalog_that_cannot_be_used_is_not_passed_over(
    hub: Hub, store: Reader, tmp_path: Path, damage: Callable[[bytes], bytes], says: str
) -> None:
    pushed(hub, folder_of(tmp_path, {"model.gguf": b"weights"}))
    hub.writer.save(PREFIX, CATALOG, damage(hub.writer.load(PREFIX, CATALOG, 1 << 20)))

    with pytest.raises(Transient, match=f"cannot read catalog {PREFIX}/{CATALOG} in .*{says}"):
        store.objects(PREFIX)


def test_a_catalog_that_is_gone_is_not_passed_over(hub: Hub, store: Reader, tmp_path: Path) -> None:
    digest = pushed(hub, folder_of(tmp_path, {"model.gguf": b"weights"})).catalog.digest
    hub.writer.delete(PREFIX, CATALOG)

    with pytest.raises(Transient, match=r"its \.xgen/catalog\.json is gone; push the model again"):
        store.objects(PREFIX)
    assert contents(store, digest) == {"model.gguf": b"weights"}


def test_a_catalog_under_the_digest_of_another_is_not_used(
    hub: Hub, store: Reader, tmp_path: Path
) -> None:
    pushed(hub, folder_of(tmp_path, {"model.gguf": b"weights"}))
    hub.writer.save(PREFIX, catalog_key("0" * 64), hub.writer.load(PREFIX, CATALOG, 1 << 20))

    with pytest.raises(Transient, match="it is not the one of its name; push that content again"):
        store.objects(PREFIX, "0" * 64)


def test_a_file_that_the_store_has_lost_or_changed_is_named(
    hub: Hub, store: Reader, tmp_path: Path
) -> None:
    pushed(hub, folder_of(tmp_path, {"a.json": b"{}", "model.gguf": b"weights"}))
    hub.writer.save(PREFIX, "model.gguf", b"wei")

    with pytest.raises(Transient, match=r"model\.gguf has 3 bytes, and its catalog says 7 bytes; "):
        store.objects(PREFIX)
    hub.writer.delete(PREFIX, "model.gguf")
    with pytest.raises(Transient, match=r"model\.gguf is missing, .*; push the model again"):
        store.objects(PREFIX)


class Between(DirectoryStore):
    """Somebody acts after the first listing."""

    def __init__(self, root: Path, act: Callable[[], object]) -> None:
        super().__init__(root)
        self._act: Callable[[], object] | None = act

    def listing(self, prefix: str) -> tuple[HubObject, ...]:
        found = super().listing(prefix)
        act, self._act = self._act, None
        if act is not None:
            act()
        return found


def test_a_push_between_the_listing_and_the_catalog_is_read_whole(tmp_path: Path) -> None:
    root = tmp_path / "hub"
    root.mkdir()
    writer = DirectoryWriter(root)
    made = Hub(kind="directory", writer=writer, location=str(root), folder=root)
    pushed(made, folder_of(tmp_path, {"model.gguf": b"first"}, "1"))
    second = folder_of(tmp_path, {"model.gguf": b"second", "more.json": b"{}"}, "2")

    store = Between(root, lambda: pushed(made, second))

    assert {item.path: read_all(store, item) for item in store.objects(PREFIX)} == {
        "model.gguf": b"second",
        "more.json": b"{}",
    }


def test_a_prefix_that_is_removed_meanwhile_is_none(tmp_path: Path) -> None:
    root = tmp_path / "hub"
    root.mkdir()
    made = Hub(kind="directory", writer=DirectoryWriter(root), location=str(root), folder=root)
    pushed(made, folder_of(tmp_path, {"model.gguf": b"first"}))

    assert Between(root, lambda: shutil.rmtree(root / PREFIX)).objects(PREFIX) == ()
