"""Pushes to a directory, to rclone's S3 server and to moto's: nothing half is ever in force."""

import hashlib
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from reconciler.errors import Rejected, Transient
from reconciler.hub.catalog import (
    CATALOG,
    LIMIT_BYTES,
    Catalog,
    Facts,
    catalog_key,
    parse_catalog,
)
from reconciler.hub.local_files import Hashed, LocalFile
from reconciler.hub.push import Order, Outcome, push
from reconciler.hub.s3_writer import S3Writer
from reconciler.hub.writable import WritableHub
from tests.hub.hubs import Hub, Servers, hub, servers
from tests.tcp_relay import relay_to

__all__ = ["hub", "servers"]

PREFIX = "gguf/org_model"
MODEL = random.Random(1).randbytes(9 * 1024 * 1024 + 5)
"""More than one part."""


class Silent:
    def begin(self, doing: str, size_bytes: int) -> None: ...
    def advance(self, size_bytes: int) -> None: ...


class Between(Silent):
    """Does something when the uploads begin, or when so many bytes of them are sent."""

    def __init__(self, act: Callable[[], None], *, after_bytes: int | None = None) -> None:
        self._act = act
        self._left = after_bytes
        self._uploading = False

    def begin(self, doing: str, size_bytes: int) -> None:
        self._uploading = doing == "uploading"
        if self._uploading and self._left is None:
            self._act()

    def advance(self, size_bytes: int) -> None:
        if not self._uploading or self._left is None:
            return
        self._left -= size_bytes
        if self._left <= 0:
            self._left = None
            self._act()


def no_check(paths: Iterable[str], where: str) -> None: ...


def no_facts(files: Sequence[LocalFile]) -> Facts:
    return Facts()


def no_content(hashed: Sequence[Hashed]) -> None: ...


def order(folder: Path, prefix: str = PREFIX, **more: object) -> Order:
    fields: dict[str, object] = {
        "folder": folder,
        "prefix": prefix,
        "pushed_at": "2026-11-30T12:00:00Z",
        "check_names": no_check,
        "describe": no_facts,
        "check_content": no_content,
    }
    return Order(**{**fields, **more})  # type: ignore[arg-type]


def pushed(hub: Hub, folder: Path, prefix: str = PREFIX, **more: object) -> Outcome:
    return push(hub.writer, order(folder, prefix, **more), Silent())


def folder_of(tmp_path: Path, files: dict[str, bytes], name: str = "model") -> Path:
    folder = tmp_path / name
    for path, content in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return folder


def current(hub: WritableHub, prefix: str = PREFIX) -> Catalog:
    return parse_catalog(hub.load(prefix, CATALOG, 1 << 20), prefix)


def files_of(hub: Hub, catalog: Catalog, prefix: str = PREFIX) -> dict[str, bytes]:
    """What a node would get, with every digest compared."""
    found = {}
    for file in catalog.files:
        content = b"".join(hub.writer.read(prefix, file.key))
        assert len(content) == file.size_bytes
        assert hashlib.sha256(content).hexdigest() == file.sha256
        found[file.path] = content
    return found


def test_a_first_push_uses_plain_paths_that_other_tools_can_read(hub: Hub, tmp_path: Path) -> None:
    files = {"model.gguf": MODEL, "sub/config.json": b"{}", "empty.txt": b""}

    outcome = pushed(hub, folder_of(tmp_path, files), licence="mit", upstream="org/name")

    assert hub.plain(PREFIX) == files
    assert current(hub.writer) == outcome.catalog
    assert files_of(hub, outcome.catalog) == files
    assert (outcome.catalog.licence, outcome.before) == ("mit", None)
    assert set(hub.content(PREFIX)) - set(files) == {CATALOG, catalog_key(outcome.catalog.digest)}


def test_a_second_push_of_the_same_changes_nothing(hub: Hub, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {"model.gguf": b"one", "a.json": b"{}"})
    pushed(hub, folder)
    before = hub.writer.stored(PREFIX)

    outcome = pushed(hub, folder)

    assert (outcome.is_new, outcome.uploaded) == (False, ())
    assert hub.writer.stored(PREFIX) == before


def test_a_re_push_uploads_what_differs_and_old_digests_stay(hub: Hub, tmp_path: Path) -> None:
    old = {"model.gguf": MODEL, "template.jinja": b"old", "gone.txt": b"gone"}
    new = {"model.gguf": MODEL, "template.jinja": b"new!", "added.txt": b"added"}
    first = pushed(hub, folder_of(tmp_path, old, "old"))

    outcome = pushed(hub, folder_of(tmp_path, new, "new"))

    assert sorted(outcome.uploaded) == ["added.txt", "template.jinja"]
    assert outcome.before == first.catalog.digest
    assert files_of(hub, current(hub.writer)) == new
    key = catalog_key(first.catalog.digest)
    before = parse_catalog(hub.writer.load(PREFIX, key, 1 << 20), key)
    assert files_of(hub, before) == old
    assert hub.plain(PREFIX) == old


def test_going_back_uploads_nothing(hub: Hub, tmp_path: Path) -> None:
    old = folder_of(tmp_path, {"model.gguf": b"old"}, "old")
    first = pushed(hub, old)
    pushed(hub, folder_of(tmp_path, {"model.gguf": b"newer"}, "new"))

    outcome = pushed(hub, old)

    assert outcome.uploaded == ()
    assert current(hub.writer).digest == first.catalog.digest
    assert files_of(hub, current(hub.writer)) == {"model.gguf": b"old"}


def test_a_dry_run_writes_nothing(hub: Hub, tmp_path: Path) -> None:
    outcome = pushed(hub, folder_of(tmp_path, {"model.gguf": MODEL}), dry_run=True)

    assert (outcome.is_new, outcome.uploaded) == (True, ("model.gguf",))
    assert hub.content(PREFIX) == {}


def test_what_lies_there_without_a_catalog_is_taken_in(hub: Hub, tmp_path: Path) -> None:
    """Whatever tool brought it, in whatever parts: what cannot be proven is uploaded."""
    files = {"model.gguf": MODEL, "same.json": b"{1}", "other.json": b"{2}"}
    for path, content in {**files, "other.json": b"{3}"}.items():
        hub.writer.save(PREFIX, path, content)

    outcome = pushed(hub, folder_of(tmp_path, files))

    assert outcome.uploaded == ("other.json",)
    assert files_of(hub, current(hub.writer)) == files
    assert hub.plain(PREFIX)["other.json"] == b"{3}"


def test_a_file_that_changes_meanwhile_fails_and_shows_nothing(hub: Hub, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {"model.gguf": MODEL, "config.json": b"{}"})

    def change() -> None:
        (folder / "model.gguf").write_bytes(MODEL[::-1])

    with pytest.raises(Transient, match="it changed while it was pushed"):
        push(hub.writer, order(folder), Between(change))

    assert CATALOG not in hub.content(PREFIX)
    outcome = pushed(hub, folder)
    assert files_of(hub, outcome.catalog)["model.gguf"] == MODEL[::-1]


def test_a_failed_re_push_leaves_the_old_digest_as_it_was(hub: Hub, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {"model.gguf": MODEL, "config.json": b"{}"})
    first = pushed(hub, folder)
    before = hub.writer.stored(PREFIX)
    (folder / "model.gguf").write_bytes(MODEL[::-1])

    def change() -> None:
        (folder / "model.gguf").write_bytes(MODEL)

    with pytest.raises(Transient, match="it changed while it was pushed"):
        push(hub.writer, order(folder), Between(change, after_bytes=1 << 20))

    assert current(hub.writer) == first.catalog
    assert set(before) <= set(hub.writer.stored(PREFIX))
    assert not any(key.startswith(".xgen/pushes/") for key in hub.content(PREFIX))


def test_a_push_whose_connections_are_cut_goes_on_later(servers: Servers, tmp_path: Path) -> None:
    """gpustack#2582: no resume after a cut."""
    settings = replace(servers.settings("rclone"), base="cut")
    files = {"a.json": b"{}", "model.gguf": MODEL}
    folder = folder_of(tmp_path, files)
    with relay_to(urlsplit(settings.endpoint).port or 0) as relay:
        writer = S3Writer(replace(settings, endpoint=relay.endpoint))

        def cut() -> None:
            relay.cut_after = 0
            writer.close()

        with pytest.raises(Transient, match=r"cannot write .* closes the connection"):
            push(writer, order(folder), Between(cut, after_bytes=5 << 20))
        relay.cut_after = None
        assert CATALOG not in {each.key for each in writer.stored(PREFIX)}
        outcome = push(writer, order(folder), Silent())

        whole = Hub(kind="rclone", writer=writer, location="")
        assert files_of(whole, current(writer)) == files
        assert outcome.is_new
        writer.close()


def test_two_first_pushes_at_once_never_mix(hub: Hub, tmp_path: Path) -> None:
    """The one that begins second ends first; the last catalog counts, both can be pulled."""
    ours = {"model.gguf": MODEL, "config.json": b"ours"}
    theirs = {"model.gguf": MODEL[::-1], "config.json": b"them"}
    other = folder_of(tmp_path, theirs, "theirs")
    inner: list[Outcome] = []

    outcome = push(
        hub.writer,
        order(folder_of(tmp_path, ours, "ours")),
        Between(lambda: inner.append(pushed(hub, other))),
    )

    assert current(hub.writer).digest == outcome.catalog.digest
    assert files_of(hub, outcome.catalog) == ours
    assert files_of(hub, inner[0].catalog) == theirs
    assert hub.plain(PREFIX) == ours


def test_two_pushes_of_the_same_at_once_are_one(hub: Hub, tmp_path: Path) -> None:
    files = {"model.gguf": MODEL, "config.json": b"{}"}
    folder = folder_of(tmp_path, files)
    inner: list[Outcome] = []

    outcome = push(hub.writer, order(folder), Between(lambda: inner.append(pushed(hub, folder))))

    assert files_of(hub, current(hub.writer)) == files
    assert hub.plain(PREFIX) == files
    assert outcome.catalog.digest == current(hub.writer).digest


def test_neighbours_whose_names_begin_alike_are_not_touched(hub: Hub, tmp_path: Path) -> None:
    """kubeai#406, and `gguf/a` against `gguf/ab`."""
    pushed(hub, folder_of(tmp_path, {"x.gguf": b"long"}, "1"), "gguf/ab")

    outcome = pushed(hub, folder_of(tmp_path, {"x.gguf": b"short"}, "2"), "gguf/a")

    assert outcome.uploaded == ("x.gguf",)
    assert hub.plain("gguf/ab") == {"x.gguf": b"long"}
    assert hub.plain("gguf/a") == {"x.gguf": b"short"}
    assert hub.writer.prefixes() == ("gguf/a", "gguf/ab")


def test_odd_names_come_back_as_they_were(hub: Hub, tmp_path: Path) -> None:
    files = {
        "Grüße 模型.gguf": b"1",
        "a b/c%20d+e&f=g?h#i.json": b"2",
        "trailing ": b"3",
        "~tilde": b"4",
        "quote\"'.txt": b"5",
        "x" * 200: b"6",
    }

    outcome = pushed(hub, folder_of(tmp_path, files))

    assert files_of(hub, outcome.catalog) == files
    assert files_of(hub, current(hub.writer)) == files
    assert hub.plain(PREFIX) == files


def test_equal_files_are_uploaded_once_as_an_object(hub: Hub, tmp_path: Path) -> None:
    pushed(hub, folder_of(tmp_path, {"a": b"first"}, "1"))

    outcome = pushed(hub, folder_of(tmp_path, {"b": b"twice", "c": b"twice"}, "2"))

    assert outcome.uploaded == ("b",)
    assert files_of(hub, outcome.catalog) == {"b": b"twice", "c": b"twice"}


def test_again_uploads_everything_and_heals(hub: Hub, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {"model.gguf": b"good", "config.json": b"{}"})
    pushed(hub, folder)
    hub.writer.save(PREFIX, "model.gguf", b"evil")

    outcome = pushed(hub, folder, again=True)

    assert sorted(outcome.uploaded) == ["config.json", "model.gguf"]
    assert files_of(hub, current(hub.writer))["model.gguf"] == b"good"
    assert hub.plain(PREFIX) == {"model.gguf": b"good", "config.json": b"{}"}


def test_a_damaged_catalog_is_replaced(hub: Hub, tmp_path: Path) -> None:
    files = {"model.gguf": b"good"}
    folder = folder_of(tmp_path, files)
    pushed(hub, folder)
    hub.writer.save(PREFIX, CATALOG, b"\0" * 4096)

    pushed(hub, folder)

    assert files_of(hub, current(hub.writer)) == files


def test_a_catalog_that_no_reader_would_take_is_never_in_force(hub: Hub, tmp_path: Path) -> None:
    """It is larger than readers read."""
    folder = folder_of(tmp_path, {"m.gguf": b"1"})
    before = pushed(hub, folder).catalog
    (folder / "m.gguf").write_bytes(b"2")

    with pytest.raises(Rejected, match="it is larger than 32 MiB"):
        pushed(hub, folder, licence="x" * LIMIT_BYTES)

    assert current(hub.writer) == before
    assert set(hub.content(PREFIX)) == {"m.gguf", CATALOG, catalog_key(before.digest)}


def test_what_is_not_said_again_stays(hub: Hub, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {"m.gguf": b"1"})
    pushed(hub, folder, licence="mit", upstream="org/name", revision="abc")

    (folder / "m.gguf").write_bytes(b"2")
    catalog = pushed(hub, folder).catalog

    assert catalog.licence == "mit"
    assert catalog.upstream is not None
    assert (catalog.upstream.repository, catalog.upstream.revision) == ("org/name", None)


def test_a_push_can_add_to_what_is_in_force(hub: Hub, tmp_path: Path) -> None:
    """A prefix that holds several quantisations grows by one."""
    first = pushed(hub, folder_of(tmp_path, {"q4.gguf": b"four"}, "a"))
    other = folder_of(tmp_path, {"q8.gguf": b"eight"}, "b")

    second = pushed(hub, other, keep_others=True)

    assert second.uploaded == ("q8.gguf",)
    assert hub.plain(PREFIX) == {"q4.gguf": b"four", "q8.gguf": b"eight"}
    assert files_of(hub, second.catalog) == {"q4.gguf": b"four", "q8.gguf": b"eight"}
    assert first.catalog.files[0] in second.catalog.files
    assert pushed(hub, other, keep_others=True).is_new is False
