"""Pushes to a prefix into which other tools write, too."""

import os
from pathlib import Path

from tests.hub.hubs import Hub, hub, servers
from tests.hub.test_push import PREFIX, current, files_of, folder_of, pushed
from tests.waiting import wait_until

__all__ = ["hub", "servers"]


def overwrite_later(hub: Hub, key: str, content: bytes) -> None:
    """As another tool would, some seconds after the last push."""
    pushed_at = max(each.modified_at for each in hub.writer.stored(PREFIX))
    if hub.kind == "directory":
        assert hub.folder is not None
        (hub.folder / PREFIX / key).write_bytes(content)
        os.utime(hub.folder / PREFIX / key, (pushed_at + 10, pushed_at + 10))
        return
    # These servers tell the time of the write: it is written until that is late enough.
    wait_until(lambda: _written_at(hub, key, content) > pushed_at + 2, what="a later write")


def _written_at(hub: Hub, key: str, content: bytes) -> float:
    hub.writer.save(PREFIX, key, content)
    return next(each.modified_at for each in hub.writer.stored(PREFIX) if each.key == key)


def test_a_file_that_another_tool_overwrote_is_uploaded_again(hub: Hub, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {"model.gguf": b"good"})
    pushed(hub, folder)
    overwrite_later(hub, "model.gguf", b"evil")
    (folder / "added").write_bytes(b"so that there is something to push")

    pushed(hub, folder)

    assert files_of(hub, current(hub.writer))["model.gguf"] == b"good"


def test_a_push_of_the_same_files_sees_what_another_tool_overwrote(
    hub: Hub, tmp_path: Path
) -> None:
    """Nothing else is new: neither a file nor a size tells that there is something to do."""
    folder = folder_of(tmp_path, {"model.gguf": b"good", "a.json": b"{}"})
    pushed(hub, folder)
    overwrite_later(hub, "model.gguf", b"evil")

    outcome = pushed(hub, folder)

    assert (outcome.is_new, outcome.uploaded) == (True, ("model.gguf",))
    assert files_of(hub, current(hub.writer))["model.gguf"] == b"good"
    assert pushed(hub, folder).is_new is False


def test_an_object_that_another_tool_overwrote_is_uploaded_again(hub: Hub, tmp_path: Path) -> None:
    pushed(hub, folder_of(tmp_path, {"model.gguf": b"old!"}, "old"))
    folder = folder_of(tmp_path, {"model.gguf": b"good"}, "new")
    key = pushed(hub, folder).catalog.files[0].key
    overwrite_later(hub, key, b"evil")

    outcome = pushed(hub, folder)

    assert (key.startswith(".xgen/"), outcome.uploaded) == (True, ("model.gguf",))
    assert files_of(hub, current(hub.writer)) == {"model.gguf": b"good"}


def test_what_another_tool_wrote_as_it_was_is_proven_once(hub: Hub, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {"model.gguf": b"good"})
    pushed(hub, folder)
    overwrite_later(hub, "model.gguf", b"good")

    outcome = pushed(hub, folder)

    assert (outcome.is_new, outcome.uploaded) == (True, ())


def test_again_heals_in_place_what_another_tool_overwrote(hub: Hub, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {"model.gguf": b"good"})
    pushed(hub, folder)
    overwrite_later(hub, "model.gguf", b"evil")

    pushed(hub, folder, again=True)

    assert hub.plain(PREFIX) == {"model.gguf": b"good"}


def test_what_a_push_adds_to_is_read_if_it_was_written_to(hub: Hub, tmp_path: Path) -> None:
    """A newer catalog must not hide that a file is older than what lies there."""
    whole = {"q2.gguf": b"two!", "q4.gguf": b"four"}
    pushed(hub, folder_of(tmp_path, whole, "a"))
    overwrite_later(hub, "q2.gguf", b"two!")
    overwrite_later(hub, "q4.gguf", b"evil")

    catalog = pushed(hub, folder_of(tmp_path, {"q8.gguf": b"eight"}, "b"), keep_others=True).catalog

    assert files_of(hub, catalog) == {"q2.gguf": b"two!", "q8.gguf": b"eight"}
