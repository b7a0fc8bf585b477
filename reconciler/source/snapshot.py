"""What a source hands over: the bytes of one revision, or why they could not be had."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceFile:
    """One file of the manifest. Exactly one of `content` and `error` is set.

    `name`: as operators know it, for messages (a path relative to the source, or the file's path).
    """

    name: str
    content: bytes | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """One complete listing of the source, read through one resolved link.

    `error`: the listing itself could not be had (missing, unreadable); `files` is then empty and
    means nothing (R2). `revision`: sha256 over names and contents, or a commit. `note`: of the
    latter, its subject and author.
    """

    location: str
    revision: str
    files: tuple[SourceFile, ...] = ()
    error: str | None = None
    note: str = ""
