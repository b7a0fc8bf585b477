"""Hugging Face's `snapshots/<revision>/` layout inside a prefix or folder (PURE).

[models--org--name/] refs/main   snapshots/<revision>/config.json …   blobs/…
"""

import re
from collections.abc import Iterable, Mapping

from reconciler.errors import Transient

_INSIDE = re.compile(r"((?:models--[^/]+/)?)snapshots/([^/]+)/.")
_REF = re.compile(r"(?:models--[^/]+/)?refs/main")
_WEIGHTS = (".gguf", ".safetensors")


def main_ref_path(paths: Iterable[str]) -> str | None:
    """The file that names the revision of the main branch, where there is exactly one."""
    found = [path for path in paths if _REF.fullmatch(path)]
    return found[0] if len(found) == 1 else None


def snapshot_root(sizes: Mapping[str, int], main_ref: str | None, where: str) -> str:
    """The folder below which the model's files are: "" or `…snapshots/<revision>`.

    `main_ref`: the content of refs/main. Raises Transient where it does not decide between several.
    """
    if any("/" not in path and path.endswith(_WEIGHTS) for path in sizes):
        return ""
    matches = (_INSIDE.match(path) for path in sizes)
    roots = sorted({f"{match[1]}snapshots/{match[2]}" for match in matches if match})
    if len(roots) <= 1:
        return roots[0] if roots else ""
    current = [root for root in roots if root.rpartition("/")[2] == main_ref]
    if len(current) == 1:
        return current[0]
    raise Transient(
        f"cannot choose the files of {where}: it holds {len(roots)} snapshots and refs/main names "
        f"none of them: {', '.join(roots)}"
    )
