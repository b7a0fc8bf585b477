import hashlib
import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.errors import Transient
from reconciler.own_files import FilesKept
from reconciler.source.last_good import LastGood, LastGoodSet

FILES = {"a.yaml": b"models: []\n", "b.yaml": b"\xff\x00 not text", "c.yaml": "größer".encode()}


def lines_of(folder: Path) -> tuple[Path, list[bytes]]:
    (path,) = folder.iterdir()
    return path, path.read_bytes().splitlines(keepends=True)


def test_keeps_files_and_revision_across_a_restart(tmp_path: Path) -> None:
    LastGood(tmp_path / "new").save(FILES, "r1")

    assert LastGood(tmp_path / "new").load() == LastGoodSet(files=FILES, revision="r1")


def test_nothing_was_kept_yet(tmp_path: Path) -> None:
    assert LastGood(tmp_path / "never").load() == LastGoodSet()


def test_replaces_the_whole_set(tmp_path: Path) -> None:
    LastGood(tmp_path).save(FILES, "r1")
    LastGood(tmp_path).save({"d.yaml": b"d"}, "r2")

    assert LastGood(tmp_path).load() == LastGoodSet(files={"d.yaml": b"d"}, revision="r2")


def test_only_the_owner_can_read_it(tmp_path: Path) -> None:
    LastGood(tmp_path / "new").save(FILES, "r1")

    path, _ = lines_of(tmp_path / "new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_damaged_file_costs_that_file_alone_and_is_named(tmp_path: Path) -> None:
    LastGood(tmp_path).save(FILES, "r1")
    path, lines = lines_of(tmp_path)
    lines[2] = lines[2].replace(b"base64", b"base46")
    path.write_bytes(b"".join(lines))

    kept = LastGood(tmp_path).load()

    assert kept.files == {name: FILES[name] for name in ("a.yaml", "c.yaml")}
    assert kept.revision == "r1"
    assert kept.error is not None
    assert "b.yaml" in kept.error


def sealed(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode() + b" " + body + b"\n"


@pytest.mark.parametrize(
    "body",
    [
        b"no JSON",
        b"\xff",
        b"[]",
        b"7",
        b"{}",
        b'{"name": "x"}',
        b'{"name": "x", "text": "\\ud800"}',
        b'{"name": "x", "base64": 7}',
    ],
)
def test_a_line_with_a_good_seal_may_hold_anything(tmp_path: Path, body: bytes) -> None:
    """Whoever edits the file by hand may seal it, too: an agent starts all the same."""
    LastGood(tmp_path).save(FILES, "r1")
    path, lines = lines_of(tmp_path)
    path.write_bytes(b"".join([*lines, sealed(body)]))
    kept = LastGood(tmp_path).load()
    assert (kept.files, kept.revision) == (FILES, "r1")
    assert kept.error is not None


@pytest.mark.parametrize(
    "body",
    [
        b"no JSON",
        b'{"version": 1}',
        b'{"version": 1, "files": 7, "revision": "r"}',
        b'{"version": 1, "files": [], "revision": null}',
        b'{"version": 1, "files": ["a.yaml", "b.yaml", "c.yaml"]}',
    ],
)
def test_a_header_with_a_good_seal_may_hold_anything(tmp_path: Path, body: bytes) -> None:
    LastGood(tmp_path).save(FILES, "r1")
    path, lines = lines_of(tmp_path)
    path.write_bytes(b"".join([sealed(body), *lines[1:]]))
    kept = LastGood(tmp_path).load()
    assert kept.files == FILES
    assert kept.revision is None
    assert kept.error is not None


def test_a_torn_file_gives_what_is_whole(tmp_path: Path) -> None:
    LastGood(tmp_path).save(FILES, "r1")
    path, lines = lines_of(tmp_path)
    path.write_bytes(b"".join(lines)[: -len(lines[-1]) // 2])

    kept = LastGood(tmp_path).load()

    assert kept.files == {name: FILES[name] for name in ("a.yaml", "b.yaml")}
    assert kept.error is not None
    assert "c.yaml" in kept.error


@given(position=st.integers(min_value=0), byte=st.integers(0, 255))
def test_no_flipped_byte_is_taken_for_content(
    tmp_path_factory: pytest.TempPathFactory, position: int, byte: int
) -> None:
    folder = tmp_path_factory.mktemp("kept")
    LastGood(folder).save(FILES, "r1")
    path, _ = lines_of(folder)
    content = bytearray(path.read_bytes())
    content[position % len(content)] = byte
    path.write_bytes(content)

    kept = LastGood(folder).load()

    assert all(FILES.get(name) == body for name, body in kept.files.items())
    assert kept.error is not None or kept == LastGoodSet(files=FILES, revision="r1")


def test_an_unreadable_set_is_reported_not_raised(tmp_path: Path) -> None:
    (tmp_path / "last-good.jsonl").mkdir()

    kept = LastGood(tmp_path).load()

    assert kept.files == {}
    assert kept.error is not None


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(Transient, match="cannot save the manifest to"):
        LastGood(tmp_path / "file" / "below").save(FILES, "r1")


SAVE_FOR_EVER = """
import pathlib, sys
from reconciler.source.last_good import LastGood
kept = LastGood(pathlib.Path(sys.argv[1]))
number = 0
while True:
    number += 1
    kept.save({f"{index}.yaml": b"%d" % number for index in range(50)}, str(number))
    if number == 1:
        print("ready", flush=True)
"""


def test_a_kill_at_any_moment_leaves_one_whole_set(tmp_path: Path) -> None:
    for _ in range(8):
        argv = [sys.executable, "-c", SAVE_FOR_EVER, str(tmp_path)]
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            process.stdout.readline()
            os.kill(process.pid, signal.SIGKILL)
        kept = LastGood(tmp_path).load()
        assert kept.error is None
        assert set(kept.files.values()) == {(kept.revision or "").encode()}
        assert len(kept.files) == 50


def test_a_set_that_somebody_removes_or_spoils_is_there_again(tmp_path: Path) -> None:
    saved = LastGood(tmp_path / "last-good")
    saved.save(FILES, "r1")
    loaded = LastGood(tmp_path / "last-good")
    loaded.load()
    (path,) = (tmp_path / "last-good").iterdir()
    for kept in (saved, loaded):
        assert kept.keep() == FilesKept()
        path.write_bytes(b"{")
        (told,) = kept.keep().rewritten
        assert told.startswith(f"{path} was changed, and is written anew")
        shutil.rmtree(path.parent)
        (told,) = kept.keep().rewritten
        assert told.startswith(f"{path} was gone, and is written anew")
        assert LastGood(tmp_path / "last-good").load() == LastGoodSet(files=FILES, revision="r1")


def test_a_damaged_set_is_not_taken_for_what_is_to_be_there(tmp_path: Path) -> None:
    LastGood(tmp_path).save(FILES, "r1")
    (path,) = tmp_path.iterdir()
    path.write_bytes(path.read_bytes()[:-40])
    kept = LastGood(tmp_path)
    kept.load()
    path.unlink()
    assert kept.keep() == FilesKept()
    assert not path.exists()
