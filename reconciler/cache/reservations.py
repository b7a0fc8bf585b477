"""What downloads have still to write, told to the other agents of a models folder.

.use/AGENT-TOKEN.room    {"version": 1, "node": …, "data_dir": …, "prefix": …, "digest": …,
                          "files": [{"path": …, "key": …, "version": …, "size_bytes": …}]}
.use/.room.lock          held from the look at all of them until one's own is written

Each is locked for as long as its download lasts. One that nobody has locked is of a process that
was killed: it counts for nothing, and who sees it removes it.
"""

import contextlib
import json
import os
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reconciler.atomic_file import make_folder
from reconciler.cache.layout import Layout, has_size
from reconciler.cache.partial import allocated_bytes
from reconciler.cache.pin_board import Owner
from reconciler.cache.store import StoredObject
from reconciler.file_lock import held, try_lock

_VERSION = 1
_ENDING = ".room"
_LOCK = ".room.lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reservation:
    """Room for these files of a revision, which are being fetched."""

    owner: Owner
    prefix: str
    digest: str
    items: tuple[StoredObject, ...]

    def unwritten(self, layout: Layout) -> int:
        """Bytes that have no place on the disk yet."""
        folder = layout.folder(self.prefix, self.digest)
        return sum(
            item.size_bytes - allocated_bytes(layout.partials, item)
            for item in self.items
            if not has_size(folder / item.path, item.size_bytes)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _File:
    """A file that another process fetches. What it is compared with is not told."""

    path: str
    key: str
    version: str
    size_bytes: int
    md5: None = None
    sha256: None = None


class Reservations:
    """Of one process, and its view of the others'. Methods raise OSError."""

    def __init__(self, layout: Layout) -> None:
        self._folder = layout.uses
        self._own: set[str] = set()

    @contextmanager
    def deciding(self, cancelled: Callable[[], bool]) -> Iterator[None]:
        """No other process reserves anything meanwhile. Raises Transient when cancelled."""
        make_folder(self._folder)
        with held(self._folder / _LOCK, cancelled=cancelled):
            yield

    @contextmanager
    def told(self, reservation: Reservation) -> Iterator[None]:
        """From now on others count it, until the end of the block. Begins while deciding."""
        name = f"{reservation.owner.key}-{secrets.token_hex(8)}{_ENDING}"
        path = self._folder / name
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        self._own.add(name)
        try:
            try_lock(fd)
            with os.fdopen(os.dup(fd), "w") as file:
                json.dump(_as_json(reservation), file, indent=1)
            yield
        finally:
            self._own.discard(name)
            with contextlib.suppress(OSError):
                path.unlink()
            os.close(fd)

    def of_others(self) -> tuple[Reservation, ...]:
        """By processes that live. Asked while deciding."""
        paths = sorted(self._folder.glob(f"*{_ENDING}"))
        found = [_of_living(path) for path in paths if path.name not in self._own]
        return tuple(each for each in found if each is not None)


def _of_living(path: Path) -> Reservation | None:
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(fd) as file:
        if try_lock(fd):
            path.unlink(missing_ok=True)
            return None
        return _parsed(file.read())


def _as_json(reservation: Reservation) -> dict[str, Any]:
    return {
        "version": _VERSION,
        "node": reservation.owner.node,
        "data_dir": reservation.owner.data_dir,
        "prefix": reservation.prefix,
        "digest": reservation.digest,
        "files": [
            {
                "path": item.path,
                "key": item.key,
                "version": item.version,
                "size_bytes": item.size_bytes,
            }
            for item in reservation.items
        ],
    }


def _parsed(text: str) -> Reservation | None:
    try:
        data: dict[str, Any] = json.loads(text)
        if data["version"] != _VERSION:
            return None
        return Reservation(
            owner=Owner(node=str(data["node"]), data_dir=str(data["data_dir"])),
            prefix=str(data["prefix"]),
            digest=str(data["digest"]),
            items=tuple(
                _File(
                    path=str(each["path"]),
                    key=str(each["key"]),
                    version=str(each["version"]),
                    size_bytes=int(each["size_bytes"]),
                )
                for each in data["files"]
            ),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
