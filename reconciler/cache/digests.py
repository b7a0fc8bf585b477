"""The identity of a set of files (PURE): by content with a catalog, by version without."""

import hashlib
from collections.abc import Iterable

from reconciler.plan.desired import ModelSpec
from reconciler.plan.ids import FilesDigest


def files_digest(files: Iterable[tuple[str, int, str]]) -> FilesDigest:
    """sha256 in hex over the sorted lines `path NUL size NUL version LF`, one a file.

    `version`: the sha256 of the content where a catalog tells it (design §6), else what the store
    has to tell one content from another.
    """
    lines = sorted(f"{path}\0{size}\0{version}\n" for path, size, version in files)
    return FilesDigest(hashlib.sha256("".join(lines).encode(errors="surrogateescape")).hexdigest())


def pinned_digest(spec: ModelSpec) -> str | None:
    """The digest of the prefix that the manifest asks for, as hubs and records write it."""
    return None if spec.digest is None else spec.digest.removeprefix("sha256:").lower()
