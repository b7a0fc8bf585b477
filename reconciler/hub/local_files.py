"""The folder that is pushed: which of its files, and what is in them."""

import hashlib
import os
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from reconciler.errors import Rejected, Transient
from reconciler.hub.writable import Watch

_BLOCK_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalFile:
    """`path`: relative to the folder. `real`: where it is, past its links.

    `version`: changes when somebody writes to it.
    """

    path: str
    real: str
    size_bytes: int
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hashed:
    """A file and its content. `sha256`: in hex. `zero_bytes`: so many at its end are all zero."""

    file: LocalFile
    sha256: str
    crc32: int
    zero_bytes: int


def files_below(folder: Path) -> tuple[LocalFile, ...]:
    """All files, sorted by path, without hidden names. Links are followed, but not out of it.

    A Hugging Face snapshot (`snapshots/<revision>`) may link to the `blobs` beside it.
    Raises Rejected for what cannot be pushed, Transient for what cannot be read.
    """
    try:
        root = os.path.realpath(folder, strict=True)
        if not os.path.isdir(root):
            raise Rejected(f"cannot push {folder}: it is no folder")
        found = list(_walk(root, "", (_boundary(root), folder), frozenset({root})))
    except OSError as exc:
        raise Rejected(f"cannot push {folder}: {exc.filename}: {exc.strerror}") from exc
    return tuple(sorted(found, key=lambda file: file.path))


def _boundary(root: str) -> str:
    above = os.path.dirname(root)
    cache = os.path.dirname(above)
    is_snapshot = os.path.basename(above) == "snapshots" and os.path.isdir(f"{cache}/blobs")
    return cache if is_snapshot else root


def _walk(
    real: str, below: str, within: tuple[str, Path], trail: frozenset[str]
) -> Iterator[LocalFile]:
    """`within`: what links may not lead out of, and its name. `trail`: the real folders so far."""
    boundary, folder = within
    with os.scandir(real) as entries:
        names = [entry.name for entry in entries if entry.name[0] != "."]
    for name in names:
        path = f"{below}{name}"
        target = _followed(os.path.join(real, name), path, folder)
        if os.path.commonpath([boundary, target]) != boundary:
            raise Rejected(f"cannot push {folder}: its link {path} leads out of it")
        status = os.stat(target)
        if stat.S_ISREG(status.st_mode):
            yield LocalFile(
                path=path, real=target, size_bytes=status.st_size, version=_version(status)
            )
        elif not stat.S_ISDIR(status.st_mode):
            raise Rejected(f"cannot push {folder}: {path} is neither a file nor a folder")
        elif target not in trail:
            yield from _walk(target, f"{path}/", within, trail | {target})


def _followed(name: str, path: str, folder: Path) -> str:
    try:
        return os.path.realpath(name, strict=True)
    except OSError as exc:
        if not os.path.islink(name):
            raise
        why = f"leads to {os.readlink(name)}: {exc.strerror}"
        raise Rejected(f"cannot push {folder}: its link {path} {why}; remove it") from exc


def hash_file(file: LocalFile, watch: Watch) -> Hashed:
    """Both digests in one read. Raises Transient where it changes meanwhile."""
    sha256, crc32, done, zeros_from = hashlib.sha256(), 0, 0, 0
    with unchanged(file) as source:
        while block := read_block(source, _BLOCK_BYTES):
            watch.check()
            sha256.update(block)
            crc32 = zlib.crc32(block, crc32)
            if kept := len(block.rstrip(b"\0")):
                zeros_from = done + kept
            done += len(block)
            watch.on_bytes(len(block))
    if done != file.size_bytes:
        raise changed(file)
    return Hashed(file=file, sha256=sha256.hexdigest(), crc32=crc32, zero_bytes=done - zeros_from)


def read_block(source: BinaryIO, size_bytes: int) -> bytes:
    """The next bytes; b"" at the end. Raises Transient for a disk that fails."""
    try:
        return source.read(size_bytes)
    except OSError as exc:
        raise Transient(f"cannot read {source.name}: {exc.strerror}") from exc


@contextmanager
def unchanged(file: LocalFile) -> Iterator[BinaryIO]:
    """The open file. Raises Transient unless it is the listed one, before and after."""
    try:
        source = open(file.real, "rb", buffering=0)  # noqa: SIM115 - closed below
    except OSError as exc:
        raise Transient(f"cannot read {file.real}: {exc.strerror}") from exc
    with source:
        if _version(os.fstat(source.fileno())) != file.version:
            raise changed(file)
        yield source
        if _version(os.fstat(source.fileno())) != file.version:
            raise changed(file)


def changed(file: LocalFile) -> Transient:
    return Transient(f"cannot push {file.real}: it changed while it was pushed; push again")


def _version(status: os.stat_result) -> str:
    return f"{status.st_dev}-{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"
