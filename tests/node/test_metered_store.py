"""Bytes from the hub are counted as they come, of transfers that fail, too."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.errors import Transient
from reconciler.hub.directory import DirectoryStore
from reconciler.node.metered_store import MeteredStore
from tests.cache.caches import opened
from tests.cache.specs import put, spec
from tests.s3_server import s3_store, serve_s3

BIG = os.urandom(24 * 1024 * 1024 + 3)
"""Some parts of an object, of 8 MiB each."""


@pytest.fixture(params=["directory", "s3"])
def hub(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """A store that holds BIG as gguf/org_name."""
    folder = tmp_path / "hub" / "models"
    put(folder, "gguf/org_name/x.gguf", BIG)
    if request.param == "directory":
        yield DirectoryStore(folder)
        return
    with serve_s3(tmp_path / "hub") as server, s3_store(server.settings("models")) as store:
        yield store


def test_a_fetch_counts_what_it_brought_and_a_cached_one_nothing(tmp_path: Path, hub: Any) -> None:
    came: list[int] = []
    cache = opened(tmp_path, MeteredStore(hub, came.append))
    for _ in range(2):
        cache.fetch(spec())
        assert sum(came) == len(BIG)


def test_a_fetch_that_fails_counts_what_came_and_the_next_the_rest(
    tmp_path: Path, hub: Any
) -> None:
    """What the first has finished is not fetched again, and not counted again."""
    came: list[int] = []
    cache = opened(tmp_path, MeteredStore(hub, came.append))
    half = len(BIG) // 2
    with pytest.raises(Transient):
        cache.fetch(spec(), cancelled=lambda: sum(came) > half)
    first = sum(came)
    assert half < first
    cache.fetch(spec())
    assert len(BIG) <= sum(came) <= first + len(BIG)


class Recorded(DirectoryStore):
    """Tells these numbers, as a store that found what an earlier try had left."""

    def __init__(self, *told: int, part_bytes: int | None = None) -> None:
        super().__init__(Path("/nowhere"))
        self._told = told
        self._part_bytes = part_bytes

    def read(
        self,
        stored: Any,
        fd: int,
        *,
        on_bytes: Callable[[int], None],
        cancelled: Callable[[], bool],
        journal: Any = None,
    ) -> None:
        if self._part_bytes is not None:
            journal.begin(self._part_bytes)
        for here in self._told:
            on_bytes(here)


class Left:
    """The journal of an earlier try: two whole parts of 10, and the last of 3."""

    def begin(self, part_bytes: int) -> tuple[int, dict[int, int]]:
        return 10, {0: 1, 2: 1, 4: 1}


class Stored:
    size_bytes = 43


def counted(store: Recorded) -> int:
    came: list[int] = []
    seen: list[int] = []
    stored: Any = Stored()
    left: Any = Left()
    MeteredStore(store, came.append).read(
        stored, -1, on_bytes=seen.append, cancelled=lambda: False, journal=left
    )
    assert tuple(seen) == store._told
    return sum(came)


def test_what_an_earlier_try_left_is_not_counted() -> None:
    assert counted(Recorded(23, 33, 43, part_bytes=8)) == 20


def test_a_part_that_was_not_there_after_all_is_counted() -> None:
    assert counted(Recorded(23, 13, 43, part_bytes=8)) == 30


def test_what_came_twice_counts_twice() -> None:
    assert counted(Recorded(0, 43, 0, 43)) == 86
