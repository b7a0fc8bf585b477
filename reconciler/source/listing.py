"""One read of a file or a directory, through one resolved link; blocking, and never a mix.

    path ─(links: git-sync)─▶ folder ─(..data: ConfigMap)─▶ root ─▶ *.yaml *.yml *.json

The links are followed once. All files are then opened relative to one descriptor of `root`; if the
links lead elsewhere afterwards, the whole read is done again.
"""

import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reconciler.source.names import shown_name
from reconciler.source.snapshot import Snapshot, SourceFile

MAX_FILE_BYTES = 1 << 20
DATA = "..data"
"""Kubelet's link to the folder with the files of a mount."""
SUFFIXES = (".yaml", ".yml", ".json")
_ATTEMPTS = 10
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A snapshot, and how it was reached.

    `stamps`: inode and mtime_ns of each file that could be read. `through`: the folder that the
    links led to; None when no link was on the way, or on an error. `atomic`: read below `..data`,
    whose content never changes in place.
    """

    snapshot: Snapshot
    stamps: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    through: str | None = None
    atomic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Root:
    """A resolved place. `name`: the one file below it that counts, or None for all."""

    folder: str
    name: str | None
    device: int
    inode: int
    linked: bool
    atomic: bool


def read_listing(path: Path) -> Listing:
    """Read everything at `path` once; what cannot be read is an error in the value."""
    shown = shown_name(str(path))
    for _ in range(_ATTEMPTS):
        try:
            root = _resolve(path)
            read = _read_root(path, root)
        except OSError as exc:
            error = f"cannot read {shown}: {_cause(exc)}"
            return Listing(snapshot=Snapshot(location=shown, revision="", error=error))
        if _still_leads_to(path, root):
            files = tuple(file for file, _ in read)
            return Listing(
                snapshot=Snapshot(location=shown, revision=digest(files), files=files),
                stamps={file.name: stamp for file, stamp in read if stamp is not None},
                through=root.folder if root.linked else None,
                atomic=root.atomic,
            )
    error = f"cannot read {shown}: it is replaced faster than it can be read"
    return Listing(snapshot=Snapshot(location=shown, revision="", error=error))


def digest(files: Iterable[SourceFile]) -> str:
    """sha256 over names and contents; a file that cannot be read counts by its name."""
    total = hashlib.sha256()
    for file in files:
        name = os.fsencode(file.name)
        body = b"!" if file.content is None else hashlib.sha256(file.content).digest()
        total.update(b"%d:%s%d:%s" % (len(name), name, len(body), body))
    return total.hexdigest()


def agree(before: Listing, now: Listing) -> bool:
    """Whether nothing was written between two reads: an empty file twice may be two truncations."""
    return before.snapshot == now.snapshot and before.stamps == now.stamps


def without_unsettled(before: Listing, now: Listing) -> Snapshot:
    """The snapshot of `now`, with every file that was written since `before` as an error."""
    snapshot = now.snapshot
    if before.snapshot.error is not None or snapshot.error is not None:
        return snapshot
    old = {file.name: file for file in before.snapshot.files}
    new = {file.name: file for file in snapshot.files}
    files = tuple(
        new[name]
        if new.get(name) == old.get(name) and now.stamps.get(name) == before.stamps.get(name)
        else SourceFile(name=name, error=f"cannot read {name}: it is still being written")
        for name in sorted(old.keys() | new.keys())
    )
    return Snapshot(location=snapshot.location, revision=digest(files), files=files)


def _resolve(path: Path) -> _Root:
    given = os.path.abspath(path)
    folder = os.path.realpath(given, strict=True)
    linked = folder != given
    name = None
    atomic = False
    mode = os.stat(folder).st_mode
    if stat.S_ISREG(mode):
        folder, name = os.path.split(folder)
    elif not stat.S_ISDIR(mode):
        raise OSError(errno.EINVAL, f"it is {_kind(mode)}, not a file or a directory")
    elif (target := _data_link(folder)) is not None:
        folder = os.path.realpath(os.path.join(folder, target), strict=True)
        linked = atomic = True
    status = os.stat(folder)
    return _Root(
        folder=folder,
        name=name,
        device=status.st_dev,
        inode=status.st_ino,
        linked=linked,
        atomic=atomic,
    )


def _data_link(folder: str) -> str | None:
    """Where kubelet's `..data` points to; None where there is no such link."""
    try:
        return os.readlink(os.path.join(folder, DATA))
    except OSError as exc:
        if exc.errno in (errno.ENOENT, errno.EINVAL):
            return None
        raise


def _still_leads_to(path: Path, root: _Root) -> bool:
    try:
        return _resolve(path) == root
    except OSError:
        return False


_Read = tuple[SourceFile, tuple[int, int] | None]


def _read_root(path: Path, root: _Root) -> tuple[_Read, ...]:
    folder = os.open(root.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if root.name is not None:
            return (_read_file(folder, root.name, shown_name(str(path))),)
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries)
        return tuple(_read_file(folder, name, shown_name(name)) for name in names if counts(name))
    finally:
        os.close(folder)


def counts(name: str) -> bool:
    """Whether a file of this name in a directory is part of the manifest."""
    return name.endswith(SUFFIXES) and not name.startswith(".")


def _read_file(folder: int, name: str, shown: str) -> _Read:
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC  # a named pipe never blocks us
    try:
        fd = os.open(name, flags, dir_fd=folder)
    except OSError as exc:
        return _unread(shown, _cause(exc))
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            return _unread(shown, f"it is {_kind(status.st_mode)}")
        content = bytearray()
        while len(content) <= MAX_FILE_BYTES and (chunk := os.read(fd, MAX_FILE_BYTES + 1)):
            content += chunk
    except OSError as exc:
        return _unread(shown, _cause(exc))
    finally:
        os.close(fd)
    if len(content) > MAX_FILE_BYTES:
        return _unread(shown, "it is larger than 1 MiB")
    return SourceFile(name=shown, content=bytes(content)), (status.st_ino, status.st_mtime_ns)


def _unread(shown: str, cause: str) -> _Read:
    return SourceFile(name=shown, error=f"cannot read {shown}: {cause}"), None


def _kind(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "no regular file")


def _cause(exc: OSError) -> str:
    text = exc.strerror or str(exc)
    return text[:1].lower() + text[1:]
