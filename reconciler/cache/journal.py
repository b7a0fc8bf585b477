"""Beside a partial: which parts of its object are written, so that a killed fetch goes on.

    {"journal": 2, "key": …, "version": …, "size": 68719476736, "part": 67108864, "boot": …}
    0
    2             the index of each finished part, in any order
    synced        all parts above are on the disk

What is not there yet survives the death of a process, but not that of the kernel: after another
boot, only what was synced counts.
"""

import contextlib
import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reconciler.cache.store import StoredObject

_VERSION = 2
_LINE = re.compile(rb"(\d{1,9})\n|synced\n")
_SYNCED = b"synced\n"
_SYNC_BYTES = 1 << 30
"""What a power cut may cost of a file. Less would make the disk wait more often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What a journal says, whose data were written in `boot`. `end`: of its last whole line."""

    key: str
    version: str
    size_bytes: int
    part_bytes: int
    boot: str
    parts: frozenset[int] = frozenset()
    end: int = 0

    def are_of(self, item: StoredObject) -> bool:
        mine = (self.key, self.version, self.size_bytes)
        return mine == (item.key, item.version, item.size_bytes)

    @property
    def done_bytes(self) -> int:
        last = (self.size_bytes - 1) // self.part_bytes
        short = (last + 1) * self.part_bytes - self.size_bytes
        return len(self.parts) * self.part_bytes - (short if last in self.parts else 0)


def this_boot() -> str:
    """Changes whenever the kernel has lost what was not on the disk yet."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def read_claims(path: Path) -> Claims | None:
    """None where there is no journal, or one that cannot be understood: nothing is done then."""
    try:
        header, newline, rest = path.read_bytes().partition(b"\n")
        data: dict[str, Any] = json.loads(header)
        if data["journal"] != _VERSION or not newline:
            return None
        claims = Claims(
            key=str(data["key"]),
            version=str(data["version"]),
            size_bytes=int(data["size"]),
            part_bytes=int(data["part"]),
            boot=str(data["boot"]),
        )
        if claims.size_bytes < 1 or claims.part_bytes < 1:
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    written: set[int] = set()
    synced: set[int] = set()
    end = 0
    while (line := _LINE.match(rest, end)) is not None:
        if line[1] is None:
            synced |= written
        elif int(line[1]) * claims.part_bytes >= claims.size_bytes:
            return None
        else:
            written.add(int(line[1]))
        end = line.end()
    return replace(
        claims,
        parts=frozenset(written if claims.boot == this_boot() else synced),
        end=len(header) + len(newline) + end,  # what follows was torn by a power cut
    )


class PartsJournal:
    """The journal of one object, for the process that has locked its partial, `data_fd`."""

    def __init__(self, path: Path, item: StoredObject, data_fd: int) -> None:
        self._path = path
        self._item = item
        self._data_fd = data_fd
        self._fd: int | None = None
        self._part_bytes = 0
        self._unsynced_bytes = 0
        self.has_parts = False

    def begin(self, part_bytes: int) -> tuple[int, frozenset[int]]:
        """The size of the parts, and the index of each that an earlier try has written."""
        claims = read_claims(self._path)
        if claims is None or not claims.are_of(self._item):
            self._part_bytes = part_bytes
            self.forget()
            return part_bytes, frozenset()
        self._part_bytes = claims.part_bytes
        if claims.boot == this_boot():
            os.ftruncate(self._open(), claims.end)
        else:
            self._rewrite(claims.parts)
        self.has_parts = bool(claims.parts)
        return claims.part_bytes, claims.parts

    def finished(self, index: int) -> None:
        os.write(self._open(), b"%d\n" % index)
        self.has_parts = True
        self._unsynced_bytes += self._part_bytes
        if self._unsynced_bytes >= _SYNC_BYTES:
            os.fdatasync(self._data_fd)
            os.write(self._open(), _SYNCED)
            self._unsynced_bytes = 0

    def forget(self) -> None:
        self._rewrite(frozenset())
        self.has_parts = False

    def _rewrite(self, synced: frozenset[int]) -> None:
        header = {
            "journal": _VERSION,
            "key": self._item.key,
            "version": self._item.version,
            "size": self._item.size_bytes,
            "part": self._part_bytes,
            "boot": this_boot(),
        }
        lines = b"".join(b"%d\n" % index for index in sorted(synced)) + _SYNCED
        os.ftruncate(self._open(), 0)
        os.write(self._open(), json.dumps(header).encode() + b"\n" + lines)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def remove(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()

    def _open(self) -> int:
        if self._fd is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
            self._fd = os.open(self._path, flags, 0o600)
        return self._fd
