"""Refuses object names that would leave the cache, or clash in it (PURE).

Names of objects are whatever somebody pushed: they are data, never paths, until they pass here.
"""

import unicodedata
from collections.abc import Iterable

from reconciler.errors import Transient

_MAX_NAME_BYTES = 255
_MAX_PATH_BYTES = 1024


def check_paths(paths: Iterable[str], where: str, *, doing: str = "cache") -> None:
    """Raises Transient with the first name that may not be written: a push can cure it.

    `where`: the prefix. `doing`: the verb for messages.
    """
    seen: dict[str, str] = {}
    files: set[str] = set()
    for path in sorted(paths):
        cause = _cause(path)
        folded = unicodedata.normalize("NFC", path).casefold()
        if cause is None and folded in seen:
            cause = f"it differs from {seen[folded]!r} in case or Unicode form alone"
        folders = folded.split("/")[:-1]
        if cause is None and any(
            "/".join(folders[: count + 1]) in files for count in range(len(folders))
        ):
            cause = "a file has the name of its folder"
        if cause is not None:
            raise Transient(f"cannot {doing} {path!r} of {where}: {cause}")
        seen[folded] = path
        files.add(folded)


def _cause(path: str) -> str | None:
    parts = path.split("/")
    if path.startswith("/"):
        return "it is absolute"
    if ".." in parts or "." in parts:
        return "it would leave its folder"
    if "" in parts:
        return "it has an empty component"
    if "\\" in path:
        return "it holds a backslash"
    categories = set(map(unicodedata.category, path))
    if "Cs" in categories:  # what stands for a byte that could not be decoded
        return "it is not UTF-8"
    if "Cc" in categories:
        return "it holds a control character"
    longest = max(len(part.encode()) for part in parts)
    if longest > _MAX_NAME_BYTES or len(path.encode()) > _MAX_PATH_BYTES:
        return "it is too long"
    return None
