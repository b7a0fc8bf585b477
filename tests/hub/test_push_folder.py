"""Which files of a folder are pushed, and which prefix they may be pushed to."""

from pathlib import Path

import pytest

from reconciler.errors import Rejected
from tests.hub.hubs import Hub, hub, servers
from tests.hub.test_push import PREFIX, folder_of, pushed

__all__ = ["hub", "servers"]


def test_hidden_names_are_left_out(hub: Hub, tmp_path: Path) -> None:
    files = {"m.gguf": b"1", ".git/HEAD": b"x", "sub/.cache/y": b"z"}

    pushed(hub, folder_of(tmp_path, files))

    assert hub.plain(PREFIX) == {"m.gguf": b"1"}


def test_links_inside_the_folder_are_followed(hub: Hub, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {"blobs/1": b"one"})
    (folder / "m.gguf").symlink_to(folder / "blobs" / "1")
    (folder / "again").symlink_to(".")

    pushed(hub, folder)

    assert hub.plain(PREFIX) == {"m.gguf": b"one", "blobs/1": b"one"}


def test_a_snapshot_of_a_hugging_face_cache_can_be_pushed(hub: Hub, tmp_path: Path) -> None:
    cache = folder_of(tmp_path, {"blobs/1": b"one"}, "models--org--name")
    snapshot = cache / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "m.gguf").symlink_to("../../blobs/1")

    pushed(hub, snapshot)

    assert hub.plain(PREFIX) == {"m.gguf": b"one"}


def test_a_link_out_of_the_folder_is_refused(hub: Hub, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {"m.gguf": b"1"})
    (folder / "passwd").symlink_to("/etc/passwd")

    with pytest.raises(Rejected, match="its link passwd leads out of it"):
        pushed(hub, folder)


def test_a_dangling_link_is_refused(hub: Hub, tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {"m.gguf": b"1"})
    (folder / "gone").symlink_to("nowhere")

    with pytest.raises(
        Rejected, match=r"its link gone leads to nowhere: No such file.*; remove it"
    ):
        pushed(hub, folder)


@pytest.mark.parametrize(
    "prefix", ["gguf", "gguf/a/b", "gguf/", "../a", "gguf/..", "/gguf/a", ".rev/a", "gguf/.a"]
)
def test_a_prefix_that_can_be_none_is_refused(hub: Hub, tmp_path: Path, prefix: str) -> None:
    with pytest.raises(Rejected, match="cannot"):
        pushed(hub, folder_of(tmp_path, {"m.gguf": b"1"}), prefix)
