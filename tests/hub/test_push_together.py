"""Several pushes to one prefix at the same time: what each of them adds is in force afterwards."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from reconciler.errors import Transient
from reconciler.hub.push import push
from reconciler.hub.turns import TURNS
from tests.hub.hubs import Hub, another_writer, hub, servers
from tests.hub.importing import folder_hub
from tests.hub.test_push import (
    PREFIX,
    Between,
    Silent,
    current,
    files_of,
    folder_of,
    order,
    pushed,
)

pytestmark = pytest.mark.slow

__all__ = ["folder_hub", "hub", "servers"]


def add_at_once(hub: Hub, tmp_path: Path, files: dict[str, bytes]) -> None:
    """A push for each; none ends before all of them have looked at the prefix."""
    folders = [folder_of(tmp_path, {path: content}, path) for path, content in files.items()]
    looked = threading.Barrier(len(files))

    def meet() -> None:
        looked.wait(60)

    def add(folder: Path) -> None:
        with another_writer(hub) as writer:
            try:
                push(writer, order(folder, keep_others=True), Between(meet))
            except Transient:  # rclone may cut an answer, moto miscount an ETag, while others write
                if hub.kind == "directory":
                    raise
                push(writer, order(folder, keep_others=True), Silent())

    with ThreadPoolExecutor(len(files)) as pool:
        list(pool.map(add, folders))


def test_what_pushes_add_at_once_is_all_in_force(hub: Hub, tmp_path: Path) -> None:
    """To a fresh prefix, and to what is in force."""
    files = {f"q{number}.gguf": f"weights {number}".encode() for number in range(6)}
    first, more = dict(list(files.items())[:2]), dict(list(files.items())[2:])

    add_at_once(hub, tmp_path, first)
    assert files_of(hub, current(hub.writer)) == first

    add_at_once(hub, tmp_path, more)
    assert files_of(hub, current(hub.writer)) == files

    assert not any(key.startswith(TURNS) for key in hub.content(PREFIX))
    assert not hub.writer.unfinished(PREFIX)


def test_what_was_added_before_another_push_ends_goes_with_it(hub: Hub, tmp_path: Path) -> None:
    """The last to end is in force, with what it inherits of the one before."""
    added = folder_of(tmp_path, {"q4.gguf": b"four"}, "added")

    def add() -> None:
        pushed(hub, added, keep_others=True, licence="mit")

    last = order(folder_of(tmp_path, {"q8.gguf": b"eight"}, "whole"))
    outcome = push(hub.writer, last, Between(add))

    assert files_of(hub, current(hub.writer)) == {"q8.gguf": b"eight"}
    assert (outcome.before, outcome.catalog.licence) != (None, None)


def test_a_writer_that_was_killed_holds_up_nobody(folder_hub: Hub, tmp_path: Path) -> None:
    """Its lock has ended with it, whatever is left of the file."""
    folder = folder_of(tmp_path, {"q4.gguf": b"four"})
    assert folder_hub.folder is not None
    lock = folder_hub.folder / PREFIX / ".xgen/.xgen-partial-lock"
    lock.parent.mkdir(parents=True)
    lock.touch()

    pushed(folder_hub, folder)

    assert not lock.exists()
