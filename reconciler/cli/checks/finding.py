"""One thing that was looked at, and what to do about it."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """SKIP: nothing was given to look at. WARN: it works, but not as well as it could."""

    OK = "ok"
    SKIP = "skip"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`said`: what was found. `next`: the step to take, where there is one."""

    subject: str
    level: Level
    said: str
    next: str | None = None


def ok(subject: str, said: str) -> Finding:
    return Finding(subject=subject, level=Level.OK, said=said)


def skip(subject: str, said: str, next: str | None = None) -> Finding:
    return Finding(subject=subject, level=Level.SKIP, said=said, next=next)


def warn(subject: str, said: str, next: str) -> Finding:
    return Finding(subject=subject, level=Level.WARN, said=said, next=next)


def fail(subject: str, said: str, next: str) -> Finding:
    return Finding(subject=subject, level=Level.FAIL, said=said, next=next)


def size(size_bytes: int) -> str:
    """For reading: `48 bytes`, `64 MiB`, `1.5 GiB`."""
    if size_bytes < 2**20:
        return f"{size_bytes} bytes"
    mib = size_bytes / 2**20
    return f"{mib:.0f} MiB" if mib < 1024 else f"{mib / 1024:.1f} GiB"
