"""The identity of a set of files that has no catalog (PURE)."""

import hashlib
from collections.abc import Iterable

from reconciler.plan.ids import FilesDigest


def files_digest(files: Iterable[tuple[str, int, str]]) -> FilesDigest:
    """sha256 in hex over the sorted lines `path NUL size NUL version LF`, one a file."""
    lines = sorted(f"{path}\0{size}\0{version}\n" for path, size, version in files)
    return FilesDigest(hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest())
