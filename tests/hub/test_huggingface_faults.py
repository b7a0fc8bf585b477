"""Imports that are killed, cut off, lied to, cancelled: nothing half or wrong gets into the hub."""

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.errors import Rejected, Transient
from reconciler.hub.catalog import CATALOG, Facts
from reconciler.hub.directory_writer import DirectoryWriter
from reconciler.hub.local_files import LocalFile
from reconciler.hub.staging import discard_unheld, staging
from tests.fake_hf_hub import FakeHub, Repo
from tests.hub.importing import (
    CHOSEN,
    MODEL,
    WEIGHTS,
    Importer,
    Steps,
    folder_hub,
    hub,
    importer,
    servers,
    upstream,
)
from tests.hub.test_push import folder_of, pushed
from tests.waiting import wait_until

MIB = 1024 * 1024
LARGE_PATH = "model.safetensors"
SMALL = [path for path in (*CHOSEN, "README.md") if path != LARGE_PATH]
LARGE = random.Random(3).randbytes(3 * MIB + 5)

__all__ = ["folder_hub", "hub", "importer", "servers", "upstream"]


class FailsOnce(DirectoryWriter):
    """A hub that does not take the first file."""

    failed = False

    def upload(self, prefix: str, key: str, *rest: Any) -> int:
        if not self.failed and not key.startswith(".xgen/"):
            self.failed = True
            raise Transient("the store is away")
        return super().upload(prefix, key, *rest)


@pytest.mark.parametrize("path", ["model.safetensors", "config.json"])
def test_other_bytes_than_the_listed_ones_are_never_pushed(importer: Importer, path: str) -> None:
    """ollama#17520: a block of zeros passes as a model."""
    good = MODEL[path]
    importer.upstream.repos["org/m"].sent_instead[path] = bytes(len(good))
    with pytest.raises(Transient, match=rf"is not what it lists, twice: {path}: its digest"):
        importer("org/m")
    assert importer.hub.plain("huggingface/org_m") == {}

    del importer.upstream.repos["org/m"].sent_instead[path]

    assert not importer("org/m").was_there
    assert importer.hub.plain("huggingface/org_m")[path] == good


def cut_midway(importer: Importer, *, at: int = 2 * MIB) -> Path:
    """Kill the child while the large file is half done; gives the partial file."""
    upstream = importer.upstream
    upstream.repos["org/m"] = Repo(files=MODEL | {"model.safetensors": LARGE})
    upstream.gate.clear()
    upstream.held_at = at
    folder = importer.folder / "an-import"

    def half_done() -> list[Path]:
        return [path for path in folder.rglob("*.partial") if path.stat().st_size >= MIB]

    def is_time() -> bool:
        return all((folder / "files" / path).exists() for path in SMALL) and bool(half_done())

    def kill() -> None:
        assert upstream.held.wait(30)
        wait_until(is_time, what="small files, and half of a large one")
        for pid in upstream.children():
            os.kill(pid, signal.SIGKILL)

    with (
        in_thread(kill),
        pytest.raises(Transient, match=r"killed \(SIGKILL; did memory .* goes on where it was"),
    ):
        importer("org/m")
    upstream.gate.set()
    upstream.requests.clear()
    (partial,) = half_done()
    return partial


def test_a_file_that_was_cut_in_the_middle_is_gone_on_with(importer: Importer) -> None:
    """gpustack#2582: no resume after a cut. gpustack#312: a retry counts bytes twice, 130 %."""
    there = cut_midway(importer).stat().st_size
    steps = Steps()

    imported = importer("org/m", steps)

    upstream = importer.upstream
    assert upstream.files_asked() == ["model.safetensors"]  # what was whole is not fetched again
    assert upstream.ranges_asked(LARGE_PATH) == [f"bytes={there}-"]
    files = importer.hub.plain("huggingface/org_m")
    assert {path: files[path] for path in CHOSEN} == CHOSEN | {LARGE_PATH: LARGE}
    small = sum(len(MODEL[path]) for path in SMALL)
    assert steps.downloads[0] == (there + small, imported.size_bytes)
    assert steps.downloads[-1] == (imported.size_bytes, imported.size_bytes)
    assert [done for done, _ in steps.downloads] == sorted(done for done, _ in steps.downloads)
    assert importer.left == []


def test_half_a_file_of_another_commit_is_not_gone_on_with(importer: Importer) -> None:
    """huggingface_hub#1498: a resume appends to a wrong file."""
    partial = cut_midway(importer)
    other = bytes(reversed(LARGE))
    files = MODEL | {"model.safetensors": other}
    importer.upstream.repos["org/m"] = Repo(files=files, commit="b" * 40)

    importer("org/m")

    assert importer.upstream.ranges_asked(LARGE_PATH) == [None]
    assert importer.hub.plain("huggingface/org_m")[LARGE_PATH] == other
    assert not partial.exists()


def test_half_a_file_that_a_power_cut_damaged_is_fetched_anew(importer: Importer) -> None:
    """ollama#17520: a block of zeros passes as a model."""
    partial = cut_midway(importer)
    there = partial.stat().st_size
    partial.write_bytes(bytes(there))

    importer("org/m")

    assert importer.upstream.ranges_asked(LARGE_PATH) == [f"bytes={there}-", None]
    assert importer.hub.plain("huggingface/org_m")[LARGE_PATH] == LARGE


@pytest.mark.parametrize("ranges", [True, False])
def test_a_connection_that_is_cut_is_gone_on_with_and_counted_once(
    importer: Importer, ranges: bool
) -> None:
    """gpustack#312: a retry counts bytes twice, 130 %."""
    upstream = importer.upstream
    upstream.repos["org/m"] = Repo(files=MODEL | {LARGE_PATH: LARGE})
    upstream.cuts = [2 * MIB]
    upstream.ranges = ranges
    steps = Steps()

    imported = importer("org/m", steps)

    assert upstream.cuts == []
    first, second = upstream.ranges_asked(LARGE_PATH)
    assert first is None
    assert second in (f"bytes={MIB}-", f"bytes={2 * MIB}-")
    assert importer.hub.plain("huggingface/org_m")[LARGE_PATH] == LARGE
    assert max(done for done, _ in steps.downloads) == imported.size_bytes


def test_a_push_that_fails_is_tried_again_without_a_download(
    importer: Importer, tmp_path: Path
) -> None:
    good = importer.hub
    importer.hub = replace(good, writer=FailsOnce(tmp_path / "hub"))
    with pytest.raises(Transient, match=r"the store is away"):
        importer("org/m")
    importer.upstream.requests.clear()

    importer("org/m")

    assert importer.upstream.files_asked() == []
    files = good.plain("huggingface/org_m")
    assert {path: files[path] for path in CHOSEN} == CHOSEN
    assert importer.left == []


def test_a_file_that_rots_between_two_tries_is_fetched_again(importer: Importer) -> None:
    importer.upstream.repos["org/m"].sent_instead["model.safetensors"] = b"x" * len(WEIGHTS)
    with pytest.raises(Transient, match=r"twice"):
        importer("org/m")
    (config,) = importer.folder.rglob("config.json")
    config.write_bytes(bytes(len(CHOSEN["config.json"])))
    importer.upstream.repos["org/m"].sent_instead.clear()

    importer("org/m")

    files = importer.hub.plain("huggingface/org_m")
    assert files["config.json"] == CHOSEN["config.json"]


def test_files_of_another_commit_are_not_pushed(importer: Importer) -> None:
    importer.upstream.repos["org/m"].sent_instead["model.safetensors"] = b"x" * len(WEIGHTS)
    with pytest.raises(Transient, match=r"twice"):
        importer("org/m")
    newer = {path: content for path, content in MODEL.items() if path != "tokenizer.json"}
    importer.upstream.repos["org/m"] = Repo(files=newer, commit="b" * 40)

    importer("org/m")

    assert "tokenizer.json" not in importer.hub.plain("huggingface/org_m")


def test_an_import_that_is_cancelled_ends_its_child(importer: Importer) -> None:
    importer.upstream.gate.clear()
    steps = Steps()
    steps.at = lambda _: steps.stop.set()

    with pytest.raises(Transient, match=r"cannot import org/m: it is no longer wanted"):
        importer("org/m", steps)

    assert importer.upstream.children() == []


def test_an_upload_that_is_cancelled_leaves_no_catalog(importer: Importer) -> None:
    steps = Steps()
    steps.at_upload = lambda _: steps.stop.set()

    with pytest.raises(Transient, match=r"cannot import org/m: it is no longer wanted"):
        importer("org/m", steps)

    assert CATALOG not in importer.hub.content("huggingface/org_m")


def test_the_child_dies_with_its_parent(upstream: FakeHub, tmp_path: Path) -> None:
    """kill -9 of the agent."""
    upstream.gate.clear()
    (tmp_path / "hub").mkdir()
    program = """
import sys
from pathlib import Path
from reconciler.hub.directory_writer import DirectoryWriter
from tests.hub import importing as these

root = Path(sys.argv[2])
hub = these.Hub(kind="directory", location="", writer=DirectoryWriter(root / "hub"))
fake = these.FakeHub(port=int(sys.argv[1]))
these.Importer(upstream=fake, hub=hub, folder=root / "imports")("org/m")
"""
    with subprocess.Popen(
        [sys.executable, "-c", program, str(upstream.port), str(tmp_path)],
        cwd=Path(__file__).parents[2],
    ) as parent:
        assert upstream.held.wait(30)
        assert upstream.children()
        parent.kill()
    wait_until(lambda: not upstream.children(), what="the child is gone")


def test_a_file_that_is_bad_at_hugging_face_is_told_and_not_kept(importer: Importer) -> None:
    def describe(files: Sequence[LocalFile]) -> Facts:
        raise Rejected(f"cannot read {files[0].real}: it is cut off")

    said = rf"so at {importer.upstream.endpoint}, commit a+: cannot read README.md: it is cut off"
    with pytest.raises(Rejected, match=rf"cannot import org/m: it is {said}; name another"):
        importer("org/m", describe=describe)
    assert importer.left == []


def test_who_waits_for_another_process_finds_what_that_imported(
    importer: Importer, tmp_path: Path
) -> None:
    upstream = importer.upstream
    upstream.gate.clear()
    other = Importer(upstream=upstream, hub=importer.hub, folder=importer.folder)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(importer, "org/m")
        assert upstream.held.wait(30)
        second = pool.submit(other, "org/m")
        upstream.gate.set()
        assert not first.result(30).was_there
        assert second.result(30).was_there
    assert sorted(upstream.files_asked()) == sorted((*CHOSEN, "README.md"))


def test_a_folder_that_another_process_works_in_is_not_removed(tmp_path: Path) -> None:
    """A job is forgotten while `hub import` goes on with what it has left."""
    folder = tmp_path / "an-import"
    with staging(folder, None, cancelled=lambda: False):
        discard_unheld(folder)
        assert folder.exists()
    discard_unheld(folder)
    assert not folder.exists()
    discard_unheld(folder)


def test_too_little_room_is_said_with_numbers(importer: Importer) -> None:
    importer.upstream.repos["org/m"].sizes["model.safetensors"] = 5 * 2**50
    with pytest.raises(
        Transient, match=r"5242880.0 GiB are needed and [\d.]+ GiB are free in .*/imports"
    ):
        importer("org/m")
    assert importer.upstream.files_asked() == []


def test_a_hub_that_cannot_be_written_is_noticed_before_the_download(
    importer: Importer, tmp_path: Path
) -> None:
    (tmp_path / "hub" / "huggingface").write_text("no folder", encoding="utf-8")
    with pytest.raises(
        Transient, match=r"cannot import org/m: the hub must take it, and cannot: cannot write"
    ):
        importer("org/m")
    assert importer.upstream.files_asked() == []


def test_a_prefix_that_holds_another_repository_is_left_alone(
    importer: Importer, tmp_path: Path
) -> None:
    """org_a/b and org/a_b have the same prefix."""
    folder = folder_of(tmp_path, {"model.safetensors": b"other"}, "other")
    pushed(importer.hub, folder, "huggingface/org_m", upstream="org_m/x")
    with pytest.raises(Rejected, match=r"has org_m/x there"):
        importer("org/m")


def test_a_prefix_without_a_catalog_is_used_as_it_is(importer: Importer) -> None:
    assert importer.hub.folder is not None
    folder_of(importer.hub.folder, dict(CHOSEN), "huggingface/org_m")
    imported = importer("org/m")
    assert (imported.was_there, imported.digest) == (True, None)
    assert importer.upstream.requests == []


@contextmanager
def in_thread(work: Callable[[], None]) -> Iterator[None]:
    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        thread.join()
