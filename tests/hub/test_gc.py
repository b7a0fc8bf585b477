"""Giving room back: what is in force, pinned, young, foreign or a neighbour's stays."""

import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from reconciler.errors import Transient
from reconciler.hub.catalog import CATALOG, CatalogFile, catalog_key, object_key, push_key
from reconciler.hub.directory_writer import DirectoryWriter
from reconciler.hub.gc import Policy, Sweep, clean, sweep
from reconciler.hub.integrity import bad_by_content, bad_by_size
from reconciler.hub.prefix_state import read_state
from reconciler.hub.removal import remove_prefix
from reconciler.hub.s3_writer import S3Writer
from tests.hub.hubs import Hub, hub, servers
from tests.hub.test_push import PREFIX, current, files_of, folder_of, pushed

__all__ = ["hub", "servers"]

DAY = 86400.0


def policy(
    *, keep: int = 1, digests: Collection[str] = (), in_days: float = 2.0, min_age: float = DAY
) -> Policy:
    now = time.time() + in_days * DAY
    return Policy(keep=keep, digests=digests, min_age_seconds=min_age, now=now)


def collected(hub: Hub, policy: Policy, prefix: str = PREFIX) -> Sweep:
    found = sweep(read_state(hub.writer, prefix), hub.writer.unfinished(prefix) or (), policy)
    clean(hub.writer, found, policy)
    return found


def versions(hub: Hub, tmp_path: Path, count: int, prefix: str = PREFIX) -> list[str]:
    """Pushes of the same weights with another template each. Returns their digests."""
    digests = []
    for number in range(count):
        files = {"m.gguf": b"weights", "t.jinja": f"template {number}".encode()}
        folder = folder_of(tmp_path, files, f"{prefix.replace('/', '_')}-{number}")
        at = f"2026-11-30T12:00:0{number}Z"
        digests.append(pushed(hub, folder, prefix, pushed_at=at).catalog.digest)
    return digests


def test_what_only_old_pushes_need_goes(hub: Hub, tmp_path: Path) -> None:
    first, _, third = versions(hub, tmp_path, 3)
    size = sum(each.size_bytes for each in hub.writer.stored(PREFIX))

    found = collected(hub, policy())

    assert files_of(hub, current(hub.writer)) == {"m.gguf": b"weights", "t.jinja": b"template 2"}
    assert set(hub.content(PREFIX)) == {
        CATALOG,
        catalog_key(third),
        "m.gguf",
        next(file.key for file in current(hub.writer).files if file.path == "t.jinja"),
    }
    assert first in found.digests
    left = sum(each.size_bytes for each in hub.writer.stored(PREFIX))
    assert found.size_bytes == size - left


def test_the_newest_pushes_and_pinned_digests_stay_pullable(hub: Hub, tmp_path: Path) -> None:
    digests = versions(hub, tmp_path, 5)

    collected(hub, policy(keep=2, digests=[digests[0]]))

    state = read_state(hub.writer, PREFIX)
    kept = {each.catalog.digest: each.catalog for each in state.pushed}
    assert set(kept) == {digests[0], digests[3], digests[4]}
    assert all(files_of(hub, catalog) for catalog in kept.values())


def test_what_was_in_force_lately_stays(hub: Hub, tmp_path: Path) -> None:
    """Pulls of it may be under way."""
    versions(hub, tmp_path, 3)
    before = hub.writer.stored(PREFIX)

    found = collected(hub, policy(in_days=0.5))

    assert (found.files, found.catalogs) == ((), ())
    assert hub.writer.stored(PREFIX) == before


def test_the_catalog_in_force_stays_though_a_newer_one_was_pushed(hub: Hub, tmp_path: Path) -> None:
    """Two pushes at once: the last to end is in force, whichever copy was written last."""
    first, second = versions(hub, tmp_path, 2)
    hub.writer.save(PREFIX, CATALOG, hub.writer.load(PREFIX, catalog_key(first), 1 << 20))

    found = collected(hub, policy())

    assert found.digests == (second,)
    assert [each.catalog.digest for each in read_state(hub.writer, PREFIX).pushed] == [first]
    assert files_of(hub, current(hub.writer))["t.jinja"] == b"template 0"


def test_nothing_goes_while_a_push_is_under_way(hub: Hub, tmp_path: Path) -> None:
    versions(hub, tmp_path, 3)
    hub.writer.save(PREFIX, push_key("f" * 64), b"")
    before = hub.writer.stored(PREFIX)

    found = collected(hub, policy(in_days=0.0, min_age=3600.0))

    assert found.waits == "a push is under way, or was cut off within --min-age"
    assert hub.writer.stored(PREFIX) == before


def test_a_push_that_begins_after_the_look_stops_it(hub: Hub, tmp_path: Path) -> None:
    versions(hub, tmp_path, 3)
    later = policy(in_days=0.0, min_age=0.0)
    found = sweep(read_state(hub.writer, PREFIX), (), later)
    recent = policy(in_days=0.0, min_age=3600.0)
    hub.writer.save(PREFIX, push_key("f" * 64), b"")

    with pytest.raises(Transient, match="something is being pushed to it"):
        clean(hub.writer, found, recent)

    assert found.catalogs
    assert all(hub.content(PREFIX)[each.key] for each in found.catalogs)


def test_the_announcement_of_a_dead_push_goes(hub: Hub, tmp_path: Path) -> None:
    versions(hub, tmp_path, 1)
    hub.writer.save(PREFIX, push_key("f" * 64), b"")

    collected(hub, policy())

    assert push_key("f" * 64) not in hub.content(PREFIX)


def test_a_first_push_that_was_cut_off_is_left_incomplete(hub: Hub) -> None:
    hub.writer.save(PREFIX, push_key("f" * 64), b"")
    hub.writer.save(PREFIX, "m.gguf", b"half")

    found = collected(hub, policy())

    assert "was cut off" in found.waits
    assert set(hub.content(PREFIX)) == {push_key("f" * 64), "m.gguf"}


def test_nothing_goes_where_a_catalog_cannot_be_read(hub: Hub, tmp_path: Path) -> None:
    first, *_ = versions(hub, tmp_path, 3)
    hub.writer.save(PREFIX, catalog_key(first), b"{}")

    with pytest.raises(Transient, match=f"cannot clean {PREFIX}: cannot read catalog"):
        collected(hub, policy())


def test_files_of_other_tools_stay(hub: Hub, tmp_path: Path) -> None:
    versions(hub, tmp_path, 2)
    hub.writer.save(PREFIX, "NOTES.md", b"by hand")

    found = collected(hub, policy())

    assert found.foreign == 1
    assert hub.content(PREFIX)["NOTES.md"] == b"by hand"


def test_a_prefix_without_a_catalog_is_left_alone(hub: Hub) -> None:
    hub.writer.save(PREFIX, "m.gguf", b"by another tool")

    found = collected(hub, policy())

    assert (found.files, found.waits) == ((), "")
    assert hub.content(PREFIX) == {"m.gguf": b"by another tool"}


def test_neighbours_stay(hub: Hub, tmp_path: Path) -> None:
    versions(hub, tmp_path, 2, "gguf/ab")
    versions(hub, tmp_path, 2, "gguf/a")
    before = hub.content("gguf/ab")

    collected(hub, policy(), "gguf/a")
    assert hub.content("gguf/ab") == before

    remove_prefix(hub.writer, "gguf/a", hub.writer.stored("gguf/a"))
    assert hub.content("gguf/ab") == before
    assert hub.writer.prefixes() == ("gguf/ab",)


def test_uploads_that_were_cut_off_go(hub: Hub, tmp_path: Path) -> None:
    versions(hub, tmp_path, 1)
    if isinstance(hub.writer, S3Writer):
        folder = hub.writer._folder(PREFIX)
        hub.writer._client._create_multipart_upload("models", f"{folder}big.gguf", {})
    else:
        assert hub.folder is not None
        (hub.folder / PREFIX / ".xgen-partial-0011").write_bytes(b"half")

    if hub.kind != "moto":  # which says that every upload began in 2010
        assert collected(hub, policy(in_days=0.5)).unfinished == ()
    found = collected(hub, policy())

    assert len(found.unfinished) == (0 if hub.kind == "rclone" else 1)  # rclone tells of none
    assert not hub.writer.unfinished(PREFIX)
    assert files_of(hub, current(hub.writer))


def test_an_upload_that_was_cut_off_is_no_file(hub: Hub, tmp_path: Path) -> None:
    if hub.folder is None or hub.kind != "directory":
        return
    versions(hub, tmp_path, 1)
    (hub.folder / PREFIX / ".xgen-partial-0011").write_bytes(b"half")

    assert not any("partial" in key for key in hub.content(PREFIX))


def test_removing_takes_everything_of_the_prefix(hub: Hub, tmp_path: Path) -> None:
    versions(hub, tmp_path, 3)
    hub.writer.save(PREFIX, "NOTES.md", b"by hand")

    remove_prefix(hub.writer, PREFIX, hub.writer.stored(PREFIX))

    assert hub.content(PREFIX) == {}
    assert hub.writer.prefixes() == ()


def test_folder_markers_go_too(hub: Hub) -> None:
    """Consoles of S3 stores create empty objects whose names end with a slash."""
    if not isinstance(hub.writer, S3Writer):
        return
    hub.writer.save(PREFIX, "m.gguf", b"1")
    hub.writer.save(PREFIX, "sub/", b"")
    if hub.kind != "rclone":
        hub.writer.save(PREFIX, "", b"")

    remove_prefix(hub.writer, PREFIX, hub.writer.stored(PREFIX))

    assert hub.writer.stored(PREFIX) == ()


def test_links_to_another_model_are_not_followed_when_removing(tmp_path: Path) -> None:
    writer = DirectoryWriter(tmp_path)
    writer.save("gguf/a", "m.gguf", b"a's")
    (tmp_path / "gguf" / "b").mkdir()
    (tmp_path / "gguf" / "b" / "sub").symlink_to("../a")
    (tmp_path / "gguf" / "b" / "m.gguf").symlink_to("../a/m.gguf")
    (tmp_path / "gguf" / "c").symlink_to("a")

    remove_prefix(writer, "gguf/b", writer.stored("gguf/b"))
    with pytest.raises(Transient, match="a link leads there"):
        remove_prefix(writer, "gguf/c", writer.stored("gguf/c"))

    assert writer.load("gguf/a", "m.gguf", 9) == b"a's"
    assert not (tmp_path / "gguf" / "b").exists()


def _bad(hub: Hub) -> tuple[dict[str, str], dict[str, str]]:
    """By size, and by content."""
    catalog = current(hub.writer)
    shallow = bad_by_size(catalog, read_state(hub.writer, PREFIX))
    missing = {each.path for each in shallow}
    rest: tuple[CatalogFile, ...] = tuple(f for f in catalog.files if f.path not in missing)
    deep = bad_by_content(hub.writer, PREFIX, rest, lambda _count: None)
    return {each.path: each.cause for each in shallow}, {each.path: each.cause for each in deep}


def test_a_directory_can_be_listed_and_written_while_others_write(tmp_path: Path) -> None:
    """Announcements come and go, and their folder with them."""
    writers = [DirectoryWriter(tmp_path) for _ in range(3)]
    writers[0].save(PREFIX, "m.gguf", b"stays")

    def announce(number: int) -> None:
        for _ in range(100):
            writers[number].save(PREFIX, push_key("the same"), b"")
            writers[number].save(PREFIX, push_key(str(number)), b"")
            assert "m.gguf" in {each.key for each in writers[number].stored(PREFIX)}
            writers[number].delete(PREFIX, push_key(str(number)))
            writers[number].delete(PREFIX, push_key("the same"))

    with ThreadPoolExecutor(3) as pool:
        for done in [pool.submit(announce, number) for number in range(3)]:
            done.result()

    assert [each.key for each in writers[0].stored(PREFIX)] == ["m.gguf"]


def test_whole_files_are_not_bad(hub: Hub, tmp_path: Path) -> None:
    pushed(hub, folder_of(tmp_path, {"m.gguf": b"1", "empty": b""}))

    assert _bad(hub) == ({}, {})


def test_a_flipped_byte_is_found_by_reading(hub: Hub, tmp_path: Path) -> None:
    pushed(hub, folder_of(tmp_path, {"m.gguf": b"good", "config.json": b"{}"}))
    hub.writer.save(PREFIX, "m.gguf", b"gooe")

    assert _bad(hub) == ({}, {"m.gguf": "its content is not what was pushed"})


def test_missing_and_cut_files_are_found_by_listing(hub: Hub, tmp_path: Path) -> None:
    pushed(hub, folder_of(tmp_path, {"m.gguf": b"good", "config.json": b"{}", "a": b"a"}))
    hub.writer.save(PREFIX, "m.gguf", b"goo")
    hub.writer.delete(PREFIX, "a")

    assert _bad(hub) == ({"a": "it is missing", "m.gguf": "it has 3 bytes, not 4"}, {})


def test_an_object_is_kept_by_a_catalog_alone_never_by_its_name(hub: Hub, tmp_path: Path) -> None:
    versions(hub, tmp_path, 2)
    hub.writer.save(PREFIX, object_key("a" * 64), b"of a push that failed")

    collected(hub, policy())

    assert object_key("a" * 64) not in hub.content(PREFIX)
