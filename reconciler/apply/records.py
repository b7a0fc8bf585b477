"""What was spawned, on disk: written before a spawn, completed after it, removed at its end.

<data-dir>/spawns/<nonce>.json    0600: it holds the backend's key

A record without a pid: the agent died around the spawn. The process, if there is one, is found by
its nonce.
"""

import contextlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from reconciler.atomic_file import PARTIAL, cause_and_cure, make_folder
from reconciler.errors import Rejected, Transient
from reconciler.own_files import OwnFile
from reconciler.plan.ids import FilesDigest, GpuUuid, Instance, ModelName, Nonce, SpecHash

VERSION = 1
NOTHING = msgspec.Raw(b"null")


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
    """A record as it was written or read last, and its folder."""

    record: SpawnRecord
    file: OwnFile
    folder: str | None


class Records:
    """The folder of records."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._on_disk: dict[Nonce, _OnDisk] = {}

    @property
    def folder(self) -> Path:
        return self._folder

    def open(self) -> None:
        """Before the first write: make the folder, drop what a crash left half written.

        Raises OSError; Rejected, as `names` does.
        """
        make_folder(self._folder, mode=0o700)
        for name in self.names():
            if name.endswith(PARTIAL):
                with contextlib.suppress(OSError):
                    (self._folder / name).unlink()

    def names(self) -> Sequence[str]:
        """Of all files in it; none where it is not there. Raises Rejected where it cannot be
        listed: to `read` it seems empty then."""
        try:
            return os.listdir(self._folder)
        except FileNotFoundError:
            return ()
        except OSError as exc:
            cause = (exc.strerror or str(exc)).lower()
            cure = f"make the folder readable for this agent (uid {os.geteuid()})"
            raise Rejected(f"cannot read the records in {self._folder}: {cause}; {cure}") from exc

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
            file = OwnFile(path=path, content=content)
            file.write()
            self._on_disk[record.nonce] = _OnDisk(record, file, folder)
        except OSError as exc:
            raise Transient(
                f"cannot write its record: {cause_and_cure(exc, self._folder)}"
            ) from exc

    def keep(self, record: SpawnRecord) -> str | None:
        """Let the disk hold this record, whatever was done to its file; two calls to the kernel
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
                file = OwnFile.read(path)
                records.append(record := _decode(path.stem, file.content))
                self._on_disk[record.nonce] = _OnDisk(record, file, folder)
            except (OSError, ValueError, RecursionError) as exc:
                problems[Nonce(path.stem)] = _unreadable(path, exc)
        return tuple(records), problems

    def _harm(self, before: _OnDisk) -> str | None:
        harm = before.file.harm()
        if harm is None and self.identity() != before.folder:
            return "lay in a copy of its folder"
        return harm


def _unreadable(path: Path, exc: Exception) -> Unreadable:
    cause = (exc.strerror or str(exc)).lower() if isinstance(exc, OSError) else str(exc)
    if isinstance(exc, msgspec.DecodeError) and not isinstance(exc, msgspec.ValidationError):
        cause = "it is no JSON record, or only a part of one"
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
