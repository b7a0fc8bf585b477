"""Who still reads a file that has gone: asked of real processes, whoever made it go."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE

import pytest

from reconciler.cache.model_cache import ModelCache
from reconciler.hub.directory import DirectoryStore
from reconciler.loop.observation import Seen
from reconciler.loop.removed_files import RemovedFiles
from reconciler.plan.observed import Adoption, FilesCached
from tests.cache.caches import BIG, opened
from tests.cache.specs import put, spec
from tests.loop.book_entries import WANTED, M, view

HOLDER = "import sys; held = open(sys.argv[1], 'rb'); print(flush=True); sys.stdin.read()"


class World:
    """A cached model, and two processes of it: one that keeps its file open, one that does not."""

    def __init__(self, cache: ModelCache, files: FilesCached, reader: int) -> None:
        self.path = Path(files.path)
        self._cache = cache
        self._removed = RemovedFiles(cache)
        instance = replace(WANTED, files_digest=files.digest)
        views = (view("reads", instance, loaded=True), view("let-go", instance, loaded=True))
        self._seen = Seen(views={M: views}, in_flight={}, leftovers=())
        self._families = {views[0].nonce: (reader,), views[1].nonce: (os.getpid(),)}

    def next_agent(self) -> None:
        self._removed = RemovedFiles(self._cache)
        adoption = Adoption(at=0.0, was_loaded=True)
        views = tuple(replace(each, adopted=adoption) for each in self._seen.views[M])
        self._seen = replace(self._seen, views={M: views})

    def look(self) -> Seen:
        return self._removed.look(self._seen, self._families)

    def replace_file(self) -> None:
        """As a fetch does it."""
        fresh = self.path.with_name("fresh")
        fresh.write_bytes(BIG)
        fresh.replace(self.path)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    put(tmp_path / "hub", "gguf/org_name/x.gguf", BIG)
    cache = opened(tmp_path, DirectoryStore(tmp_path / "hub"))
    files = cache.fetch(spec())
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, files.path], stdin=PIPE, stdout=PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        made = World(cache, files, child.pid)
        assert made.look().reads_removed == frozenset()
        yield made
        child.communicate()


def test_who_has_the_old_file_open_is_told_of_from_then_on(world: World) -> None:
    world.path.unlink()
    gone = world.look()
    world.replace_file()
    mended, later = world.look(), world.look()

    assert gone.reads_removed == mended.reads_removed == later.reads_removed == {"reads"}
    assert [each.nonce for each in later.sound[M]] == ["let-go"]


def test_what_went_while_no_agent_was_there_is_found_at_the_first_look(world: World) -> None:
    world.next_agent()
    assert world.look().reads_removed == frozenset()

    world.replace_file()
    world.next_agent()

    assert world.look().reads_removed == world.look().reads_removed == {"reads"}


def test_a_file_that_only_has_another_name_now_is_the_same(world: World) -> None:
    """A catalog that appears gives the same bytes another revision, by hard links."""
    other = world.path.parent.with_name("other")
    other.mkdir()
    os.link(world.path, other / "x.gguf")
    world.path.unlink()

    assert world.look().reads_removed == frozenset()


def test_a_touched_file_is_the_same(world: World) -> None:
    os.utime(world.path, (0, 0))

    assert world.look().reads_removed == frozenset()
