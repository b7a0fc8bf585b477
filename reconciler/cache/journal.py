"""Beside a partial: which parts of its object are written, so that a killed fetch goes on.

    {"journal": 1, "key": …, "version": …, "size": 68719476736, "part": 67108864}
    0 3b9ac9ff
    2 00c0ffee         index and CRC-32 of each finished part, in any order

It is not synced: what a power cut made of the parts shows when they are read back.
"""

import contextlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reconciler.cache.store import StoredObject

_VERSION = 1
_LINE = re.compile(rb"(\d{1,9}) ([0-9a-f]{8})\n")


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What a journal says. `end`: where its last whole line ends."""

    key: str
    version: str
    size_bytes: int
    part_bytes: int
    parts: Mapping[int, int] = field(default_factory=dict)
    end: int = 0

    def are_of(self, item: StoredObject) -> bool:
        mine = (self.key, self.version, self.size_bytes)
        return mine == (item.key, item.version, item.size_bytes)

    @property
    def done_bytes(self) -> int:
        last = (self.size_bytes - 1) // self.part_bytes
        short = (last + 1) * self.part_bytes - self.size_bytes
        return len(self.parts) * self.part_bytes - (short if last in self.parts else 0)


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
        )
        if claims.size_bytes < 1 or claims.part_bytes < 1:
            return None
    except (OSError, ValueError, KeyError, TypeError):
        return None
    parts: dict[int, int] = {}
    end = 0
    while (line := _LINE.match(rest, end)) is not None:
        if int(line[1]) * claims.part_bytes >= claims.size_bytes:
            return None
        parts[int(line[1])] = int(line[2], 16)
        end = line.end()
    end += len(header) + len(newline)  # what follows was torn by a power cut
    return Claims(
        key=claims.key,
        version=claims.version,
        size_bytes=claims.size_bytes,
        part_bytes=claims.part_bytes,
        parts=parts,
        end=end,
    )


class PartsJournal:
    """The journal of one object, for the process that has locked its partial."""

    def __init__(self, path: Path, item: StoredObject) -> None:
        self._path = path
        self._item = item
        self._fd: int | None = None
        self._part_bytes = 0
        self.has_parts = False

    def begin(self, part_bytes: int) -> tuple[int, Mapping[int, int]]:
        """The size of the parts, and the CRC-32 of each that an earlier try says it has written."""
        claims = read_claims(self._path)
        if claims is None or not claims.are_of(self._item):
            self._part_bytes = part_bytes
            self.forget()
            return part_bytes, {}
        self._part_bytes = claims.part_bytes
        os.ftruncate(self._open(), claims.end)
        self.has_parts = bool(claims.parts)
        return claims.part_bytes, claims.parts

    def finished(self, index: int, crc32: int) -> None:
        os.write(self._open(), b"%d %08x\n" % (index, crc32))
        self.has_parts = True

    def forget(self) -> None:
        header = {
            "journal": _VERSION,
            "key": self._item.key,
            "version": self._item.version,
            "size": self._item.size_bytes,
            "part": self._part_bytes,
        }
        os.ftruncate(self._open(), 0)
        os.write(self._open(), json.dumps(header).encode() + b"\n")
        self.has_parts = False

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
