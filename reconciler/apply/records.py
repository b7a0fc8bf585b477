"""What was spawned, on disk: written before a spawn, completed after it, removed at its end.

<data-dir>/spawns/<nonce>.json    0600: it holds the backend's key

A record without a pid: the agent died around the spawn. The process, if there is one, is found by
its nonce.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from reconciler.atomic_file import PARTIAL, make_folder, replace_file
from reconciler.errors import Rejected, Transient
from reconciler.plan.ids import FilesDigest, GpuUuid, Instance, ModelName, Nonce, SpecHash

VERSION = 1
MAX_BYTES = 16 * 1024 * 1024
"""Of a file of the agent's own. A spec comes from a file of 1 MiB at most."""
NOTHING = msgspec.Raw(b"null")
_MODE = 0o600
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_IN_THE_WAY = (errno.EISDIR, errno.ENOTDIR, errno.EEXIST)
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
}


class SpawnRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """One spawn. Additions must be optional: the release before reads these files, too.

    `written_ticks`: when the record was first written, in ticks after boot; the process is not
    older. `session`, `start_ticks`, `pid`: None until the process is there; the session's number is
    its leader's pid. `sessions`: others that its processes opened. `argv`: keys are masked.
    `scratch`: its folders for sockets and temporary files. `cgroup`: where its group is, if one
    could be made. `shared_memory`: what its processes had mapped of it, inodes by their names.
    `loaded`: it served once. `stopping`: its stop was wanted, and has begun.
    `spec`, `launch`: for the next agent, which takes it over by them (`apply.adoption`); apart, so
    that a record tells of a process though they cannot be read. `launch_hash`: see
    `apply.launch_drift`. `folder`: the one that it was written into; None: by a release
    that did not note it.
    """

    version: int
    nonce: Nonce
    node: str
    boot_id: str
    pid_namespace: str
    written_ticks: int
    model: ModelName
    spec_hash: SpecHash
    files_digest: FilesDigest
    gpus: tuple[GpuUuid, ...]
    backend: str
    argv: tuple[str, ...]
    host: str
    port: int
    api_key: str | None
    log: str
    log_offset: int
    pid: int | None = None
    start_ticks: int | None = None
    session: int | None = None
    sessions: tuple[int, ...] = ()
    scratch: tuple[str, ...] = ()
    cgroup: str | None = None
    shared_memory: dict[str, int] = {}
    loaded: bool = False
    stopping: bool = False
    first_answer_seconds: float = 300.0
    spec: msgspec.Raw = NOTHING
    launch: msgspec.Raw = NOTHING
    launch_hash: str | None = None
    folder: str | None = None

    @property
    def instance(self) -> Instance:
        return Instance(spec_hash=self.spec_hash, files_digest=self.files_digest)

    @property
    def all_sessions(self) -> tuple[int, ...]:
        """The first one first; empty while the process is not known."""
        return (self.session, *self.sessions) if self.session is not None else ()

    def is_copy_in(self, folder: str | None) -> bool:
        """Written into another folder than this one, whose agent may live."""
        return self.folder is not None and self.folder != folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """A record that tells no more than its name. `why`: a sentence. `cure`: what lets an agent go
    on with what it speaks of, as a clause; None: nothing is known to."""

    why: str
    cure: str | None = None


class _Version(msgspec.Struct):
    version: int


class _OtherVersion(ValueError):
    """Of a release that this one knows nothing of."""


@dataclass(frozen=True, slots=True)
class _OnDisk:
    """A record as it was written or read last: its file's content, and its folder. `look`: how the
    file looked when the content was seen in it last; empty: not yet."""

    record: SpawnRecord
    content: bytes
    folder: str | None
    look: tuple[int, ...] = ()


class Records:
    """The folder of records."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._on_disk: dict[Nonce, _OnDisk] = {}

    def open(self) -> None:
        """Before the first write: make the folder, drop what a crash left half written.

        Raises OSError; Rejected where it cannot be listed, since it would seem empty.
        """
        make_folder(self._folder, mode=0o700)
        try:
            names = os.listdir(self._folder)
        except OSError as exc:
            cause = (exc.strerror or str(exc)).lower()
            cure = f"make the folder readable for this agent (uid {os.geteuid()})"
            raise Rejected(f"cannot read the records in {self._folder}: {cause}; {cure}") from exc
        for name in names:
            if name.endswith(PARTIAL):
                with contextlib.suppress(OSError):
                    (self._folder / name).unlink()

    def identity(self) -> str | None:
        """Of the folder: a move keeps it, and another path to it; a copy, or what a backup brings
        back, has another one. None: it is not there."""
        try:
            status = self._folder.stat()
        except FileNotFoundError:
            return None
        return f"{status.st_dev}:{status.st_ino}"

    def write(self, record: SpawnRecord) -> None:
        """Whole or not at all, and on the disk when it returns; with the folder that it is in.

        Raises Transient: "cannot write its record: <cause>; <what to do>".
        """
        path = self.path(record.nonce)
        try:
            make_folder(self._folder, mode=0o700)
            folder = self.identity()
            here = msgspec.structs.replace(record, folder=folder)
            content = msgspec.json.format(msgspec.json.encode(here), indent=1) + b"\n"
            replace_file(path, content)
            self._on_disk[record.nonce] = _OnDisk(record, content, folder)
        except OSError as exc:
            raise Transient(
                f"cannot write its record: {cause_and_cure(exc, self._folder)}"
            ) from exc

    def keep(self, record: SpawnRecord) -> str | None:
        """Let the disk hold this record, whatever was done to its file; one call to the kernel
        where nothing was.

        Returns what was done to it, as a clause, if it had to be written anew for that. Raises
        Transient, as `write` does.
        """
        before = self._on_disk.get(record.nonce)
        harm = self._harm(before) if before is not None else None
        if before is None or before.record != record or harm is not None:
            self.write(record)
        return harm

    def path(self, nonce: Nonce) -> Path:
        return self._folder / f"{nonce}.json"

    def remove(self, nonce: Nonce) -> str | None:
        """Returns why it cannot be, as a sentence; None: it is gone."""
        path = self.path(nonce)
        self._on_disk.pop(nonce, None)
        try:
            path.unlink(missing_ok=True)
        except OSError as exc:
            return f"cannot remove spawn record {path}: {cause_and_cure(exc, self._folder)}"
        return None

    def read(self) -> tuple[tuple[SpawnRecord, ...], Mapping[Nonce, Unreadable]]:
        """All records that can be read, and what is wrong with each that cannot, by its name.

        One of the latter is left where it is: what it speaks of may live.
        """
        records, problems = [], {}
        folder = self.identity()
        for path in sorted(self._folder.glob("*.json")):
            try:
                look = _look(path.lstat())
                content = read_regular(path)
                records.append(record := _decode(path.stem, content))
                self._on_disk[record.nonce] = _OnDisk(record, content, folder, look)
            except (OSError, ValueError, RecursionError) as exc:
                problems[Nonce(path.stem)] = _unreadable(path, exc)
        return tuple(records), problems

    def _harm(self, before: _OnDisk) -> str | None:
        """None: a touch, or a backup's link, did none."""
        nonce = before.record.nonce
        path = self.path(nonce)
        try:
            status = path.lstat()
            if _look(status) == before.look:
                return None
            content = read_regular(path)
        except (FileNotFoundError, NotADirectoryError):
            return "was gone"
        except (OSError, ValueError) as exc:
            return f"could not be read: {exc}"
        if stat.S_IMODE(status.st_mode) != _MODE:
            return f"had mode {stat.S_IMODE(status.st_mode):04o}"
        if content != before.content:
            return "was changed"
        if self.identity() != before.folder:
            return "lay in a copy of its folder"
        self._on_disk[nonce] = replace(before, look=_look(status))
        return None


def _look(status: os.stat_result) -> tuple[int, ...]:
    """Otherwise after whatever was done to a file, or to the folders that it lies in."""
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def cause_and_cure(exc: OSError, folder: Path) -> str:
    """What a disk says, and what an operator has to do about it."""
    cause = (exc.strerror or str(exc)).lower()
    if exc.errno in _NO_ROOM:
        return f"{cause}; free some in {folder}"
    if exc.errno in _IN_THE_WAY:
        return f"{cause}; take away what stands in the way at {folder}"
    return f"{cause}; make {folder} writable"


def read_regular(path: Path) -> bytes:
    """Raises OSError or ValueError, which says what stands there, or that it is larger than
    MAX_BYTES. Never waits, as the opening of a named pipe does."""
    _need_regular(path.lstat())  # first: of a link or a socket an open says something else
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    file = os.open(path, flags)
    try:
        _need_regular(os.fstat(file))
        with os.fdopen(file, "rb", closefd=False) as stream:
            content = stream.read(MAX_BYTES + 1)
    finally:
        os.close(file)
    if len(content) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES >> 20} MiB")
    return content


def _need_regular(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        kind = _KINDS.get(stat.S_IFMT(status.st_mode), "a device")
        raise ValueError(f"it is no regular file but {kind}")


def _unreadable(path: Path, exc: Exception) -> Unreadable:
    cause = (exc.strerror or str(exc)).lower() if isinstance(exc, OSError) else str(exc)
    shown = os.fsencode(path).decode(errors="backslashreplace")  # for JSON, whatever its name
    cure = None
    if isinstance(exc, PermissionError):
        cure = f"make it readable for this agent (uid {os.geteuid()})"
    elif isinstance(exc, _OtherVersion):
        cure = "start the release again that wrote it"
    return Unreadable(why=f"cannot read spawn record {shown}: {cause}", cure=cure)


def _decode(name: str, content: bytes) -> SpawnRecord:
    version = msgspec.json.decode(content, type=_Version).version
    if version != VERSION:
        raise _OtherVersion(f"it has version {version}, this agent knows {VERSION}")
    record = msgspec.json.decode(content, type=SpawnRecord)
    if name != record.nonce:
        raise ValueError(f"it speaks of the spawn {record.nonce}")
    return record
