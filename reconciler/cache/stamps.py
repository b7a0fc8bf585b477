"""How published files looked when their content was last known to be right.

Beside each record, DIGEST.stamps:
{"version": 1, "files": {path: {"size": …, "mtime_ns": …, "inode": …, "proof": "sha256", "at": …}}}
`at`: seconds since 1970. It is not synced: a file without a stamp is as good as one of an older
release, which counts as it is if its size is right.
"""

import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import structlog

from reconciler.cache.layout import Layout
from reconciler.cache.record import RecordedObject, load_record
from reconciler.file_lock import held_now

_log = structlog.get_logger(__name__)

_VERSION = 1
NEVER = -1
"""An mtime that no file has: the stamp of a file that is to be looked at."""


class Proof(StrEnum):
    """What a content was compared with, the best first."""

    SHA256 = "sha256"
    MD5 = "md5"
    SIZE = "size"
    NONE = "none"
    """It looked changed, and only its size was known: it is used as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """`at`: when its content was proven, in seconds since 1970."""

    size: int
    mtime_ns: int
    inode: int
    proof: Proof
    at: float

    def is_of(self, status: os.stat_result) -> bool:
        mine = (self.size, self.mtime_ns, self.inode)
        return mine == (status.st_size, status.st_mtime_ns, status.st_ino)

    def is_alike(self, other: "Stamp") -> bool:
        """Whether the file looked the same then."""
        mine = (self.size, self.mtime_ns, self.inode)
        return mine == (other.size, other.mtime_ns, other.inode)


Stamps = Mapping[str, Stamp]
"""By path, relative to the revision."""


def proof_of(item: RecordedObject) -> Proof:
    """The best that the hub tells of an object."""
    if item.sha256 is not None:
        return Proof.SHA256
    return Proof.SIZE if item.md5 is None else Proof.MD5


def stamp_of(status: os.stat_result, proof: Proof) -> Stamp:
    return Stamp(
        size=status.st_size,
        mtime_ns=status.st_mtime_ns,
        inode=status.st_ino,
        proof=proof,
        at=round(time.time(), 3),
    )


def load_stamps(path: Path) -> dict[str, Stamp]:
    """Empty where there are none, or none that can be understood."""
    try:
        data: dict[str, Any] = json.loads(path.read_bytes())
        if data["version"] != _VERSION:
            return {}
        return {
            str(name): Stamp(
                size=int(each["size"]),
                mtime_ns=int(each["mtime_ns"]),
                inode=int(each["inode"]),
                proof=Proof(each["proof"]),
                at=float(each["at"]),
            )
            for name, each in data["files"].items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def save_stamps(path: Path, stamps: Stamps) -> None:
    """Replace them. The prefix's lock is held. Raises OSError."""
    data = {
        "version": _VERSION,
        "files": {name: asdict(stamp) for name, stamp in sorted(stamps.items())},
    }
    new = path.with_name(f"{path.name}.new")
    new.write_text(json.dumps(data, indent=1))
    os.replace(new, path)


def stamp_published(
    layout: Layout, prefix: str, digest: str, items: Iterable[RecordedObject]
) -> None:
    """These files are as the hub has them. The prefix's lock is held. Raises OSError."""
    path = layout.stamps(prefix, digest)
    stamps = load_stamps(path)
    for item in items:
        status = os.stat(layout.folder(prefix, digest) / item.path)
        stamps[item.path] = stamp_of(status, proof_of(item))
    save_stamps(path, stamps)


def is_unchanged(layout: Layout, prefix: str, digest: str, item: RecordedObject) -> bool:
    """Whether the file is there, as large as listed, and looks as it did when it was right."""
    try:
        status = os.stat(layout.folder(prefix, digest) / item.path)
    except OSError:
        return False
    stamp = load_stamps(layout.stamps(prefix, digest)).get(item.path)
    if stamp is not None and (stamp.proof is Proof.NONE or not stamp.is_of(status)):
        return False
    return status.st_size == item.size_bytes


def stamp_unseen(layout: Layout) -> None:
    """Take files without a stamp as they are, where their size is right.

    An older release published them, or a process was killed. Never raises OSError.
    """
    for path in sorted((layout.models / ".rev").glob("*/*/*.json")):
        prefix = f"{path.parent.parent.name}/{path.parent.name}"
        try:
            with held_now(layout.lock(prefix)) as ours:
                if ours:
                    _stamp_unseen(layout, prefix, path)
        except OSError as exc:
            _log.warning("files cannot be stamped", prefix=prefix, cause=exc.strerror)


def _stamp_unseen(layout: Layout, prefix: str, path: Path) -> None:
    record = load_record(path)
    if record is None or record.digest != path.stem:
        return
    stamps = load_stamps(layout.stamps(prefix, record.digest))
    unseen: dict[str, Stamp] = {}
    for item in record.objects:
        if item.path not in record.present or item.path in stamps:
            continue
        try:
            status = os.stat(layout.folder(prefix, record.digest) / item.path)
        except FileNotFoundError:
            continue
        if status.st_size == item.size_bytes:
            unseen[item.path] = stamp_of(status, Proof.SIZE)
    if unseen:
        save_stamps(layout.stamps(prefix, record.digest), stamps | unseen)
