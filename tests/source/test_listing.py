"""One read: what counts as a file, what is an error, and that revisions never mix."""

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.source.listing import MAX_FILE_BYTES, read_listing
from reconciler.source.snapshot import Snapshot
from tests.source.atomic_writer import ConfigMapVolume


def errors(snapshot: Snapshot) -> dict[str, str]:
    return {file.name: file.error for file in snapshot.files if file.error is not None}


def test_reads_manifest_files_sorted_and_skips_the_rest(tmp_path: Path) -> None:
    for name in ("b.yml", "a.yaml", "c.json", "notes.md", ".hidden.yaml", "d.yaml~"):
        (tmp_path / name).write_text(name)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "e.yaml").write_text("not read")

    snapshot = read_listing(tmp_path).snapshot

    assert [(file.name, file.content) for file in snapshot.files] == [
        ("a.yaml", b"a.yaml"),
        ("b.yml", b"b.yml"),
        ("c.json", b"c.json"),
    ]


def test_reads_one_file_of_any_name(tmp_path: Path) -> None:
    path = tmp_path / "manifest.txt"
    path.write_text("text")

    (file,) = read_listing(path).snapshot.files

    assert (file.name, file.content) == (str(path), b"text")


def test_names_that_are_no_text_are_shown_as_what_they_are(tmp_path: Path) -> None:
    """They stand in messages and answers, where neither surrogates nor escape codes belong."""
    for name in (b"\xff\xfe.yaml", b"a\x1b[2Jb.yaml", "größe.yaml".encode()):
        Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name))).write_bytes(b"x: [")

    files = read_listing(tmp_path).snapshot.files

    assert [file.name for file in files] == [
        "a\\x1b[2Jb.yaml",
        "größe.yaml",
        "\\xff\\xfe.yaml",
    ]
    assert {file.content for file in files} == {b"x: ["}


def test_a_place_whose_name_is_no_text_can_be_named(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), b"\xff")))
    missing = read_listing(path).snapshot
    path.mkdir()

    assert missing.error == f"cannot read {tmp_path}/\\xff: no such file or directory"
    assert read_listing(path).snapshot.location == f"{tmp_path}/\\xff"


def test_an_empty_directory_is_a_listing_and_a_missing_one_is_an_error(tmp_path: Path) -> None:
    """argo-cd#2573 (scenario 40): a source that is down must not look like nothing desired."""
    empty = read_listing(tmp_path).snapshot
    missing = read_listing(tmp_path / "gone").snapshot

    assert (empty.error, empty.files) == (None, ())
    assert missing.error == f"cannot read {tmp_path / 'gone'}: no such file or directory"


def test_a_path_that_is_no_file_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    snapshot = read_listing(tmp_path / "pipe").snapshot

    assert snapshot.error is not None
    assert "it is a named pipe, not a file or a directory" in snapshot.error


def test_a_loop_of_links_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")

    assert read_listing(tmp_path / "loop").snapshot.error is not None


def test_what_cannot_be_read_is_an_error_of_that_file_alone(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text("good")
    (tmp_path / "folder.yaml").mkdir()
    (tmp_path / "dangling.yaml").symlink_to("nowhere")
    (tmp_path / "large.yaml").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    (tmp_path / "broken.yaml").symlink_to("/proc/self/mem")  # read() answers EIO
    os.mkfifo(tmp_path / "pipe.yaml")  # nobody writes: a plain open() would wait for ever
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket.yaml"))
        snapshot = read_listing(tmp_path).snapshot

    assert errors(snapshot) == {
        "broken.yaml": "cannot read broken.yaml: input/output error",
        "dangling.yaml": "cannot read dangling.yaml: no such file or directory",
        "folder.yaml": "cannot read folder.yaml: it is a directory",
        "large.yaml": "cannot read large.yaml: it is larger than 1 MiB",
        "pipe.yaml": "cannot read pipe.yaml: it is a named pipe",
        "socket.yaml": "cannot read socket.yaml: no such device or address",
    }
    assert [file.content for file in snapshot.files if file.error is None] == [b"good"]


def test_a_file_of_exactly_one_mebibyte_is_read(tmp_path: Path) -> None:
    (tmp_path / "large.yaml").write_bytes(b"x" * MAX_FILE_BYTES)

    (file,) = read_listing(tmp_path).snapshot.files

    assert file.content is not None


READ_AS_NOBODY = """
import os, pathlib, sys
from reconciler.source.listing import read_listing
os.setuid(65534)
print(read_listing(pathlib.Path(sys.argv[1])).snapshot.files[0].error)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_a_file_without_permission_is_an_error_of_that_file() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        (Path(folder) / "mine.yaml").write_text("mine")
        (Path(folder) / "mine.yaml").chmod(0o600)
        argv = [sys.executable, "-c", READ_AS_NOBODY, folder]
        done = subprocess.run(argv, capture_output=True, text=True, check=True)

    assert done.stdout == "cannot read mine.yaml: permission denied\n"


def test_a_revision_is_the_content_not_the_way_it_was_written(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "a.yaml").write_text("same")
    volume = ConfigMapVolume(tmp_path / "volume")
    volume.write({"a.yaml": "same"})
    first = read_listing(volume.folder).snapshot.revision
    volume.write({"a.yaml": "same"})

    assert {first, read_listing(volume.folder).snapshot.revision} == {
        read_listing(plain).snapshot.revision
    }


def test_names_and_contents_cannot_be_confused_in_a_revision(tmp_path: Path) -> None:
    revisions = set()
    for index, (name, text) in enumerate([("a.yaml", "b"), ("ab.yaml", ""), ("a.yaml", "")]):
        folder = tmp_path / str(index)
        folder.mkdir()
        (folder / name).write_text(text)
        revisions.add(read_listing(folder).snapshot.revision)

    assert len(revisions) == 3


@contextmanager
def writer(kind: str, folder: Path, files: int) -> Iterator[None]:
    """A process that swaps revisions as fast as it can."""
    argv = [sys.executable, "-m", "tests.source.atomic_writer", kind, str(folder), str(files)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield
        finally:
            process.kill()


@pytest.mark.parametrize(("kind", "link"), [("configmap", "."), ("git-sync", "current")])
def test_a_swap_in_the_middle_of_a_read_never_mixes_revisions(
    tmp_path: Path, kind: str, link: str
) -> None:
    """llama-swap#671, PR#217 (scenario 38): through the links, while they move."""
    seen: list[bytes | None] = []
    with writer(kind, tmp_path, 12):
        while len(seen) < 60 or len(set(seen)) < 5:
            snapshot = read_listing(tmp_path / link).snapshot
            if snapshot.error is None:  # "replaced faster than it can be read" is honest
                contents = {file.content for file in snapshot.files}
                assert len(snapshot.files) == 12, errors(snapshot)
                assert len(contents) == 1, contents
                seen.append(contents.pop())
