"""Files that are used where they are: `file://`, and folders of an older installation.

They are never copied, changed or deleted. Their digest is over path, size and mtime.
"""

import os
import stat
from dataclasses import dataclass, replace
from pathlib import Path

from reconciler.cache.choose import Wish, choose
from reconciler.cache.digests import files_digest
from reconciler.cache.snapshots import main_ref_path
from reconciler.errors import Rejected
from reconciler.plan.observed import FilesCached

_MAX_FILES = 20_000
_MAX_REF_BYTES = 200


@dataclass(frozen=True, slots=True)
class _Found:
    size_bytes: int
    mtime_ns: int


def find_in_place(
    path: Path, wish: Wish, allowed_roots: tuple[Path, ...] | None = None
) -> FilesCached:
    """What is at `path`, a folder or one .gguf. `allowed_roots`: None means anywhere.

    Raises Rejected where it is missing, unreadable or not allowed; as `choose` otherwise.
    """
    _check_roots([os.path.realpath(path)], path, allowed_roots)
    try:
        if path.is_dir():
            folder = os.path.realpath(path)
            found = _walk(folder, "", frozenset({folder}))
        else:
            folder = os.path.realpath(path.parent, strict=True)
            os.stat(path)
            found = {name: item for name, item in _entries(folder) if isinstance(item, _Found)}
            wish = replace(wish, file=path.name)
        main_ref = _main_ref(folder, found)
    except OSError as exc:
        raise Rejected(f"cannot use {path}: {(exc.strerror or str(exc)).lower()}") from exc
    choice = choose({name: item.size_bytes for name, item in found.items()}, wish, main_ref)
    chosen = [os.path.realpath(os.path.join(folder, name)) for name in choice.paths]
    _check_roots(chosen, path, allowed_roots)
    lines = [(name, found[name].size_bytes, str(found[name].mtime_ns)) for name in choice.paths]
    return FilesCached(
        digest=files_digest(lines),
        path=_join(folder, choice.main),
        root=_join(folder, choice.root),
        format=choice.format,
        mmproj=_join(folder, choice.mmproj) if choice.mmproj else None,
        size_bytes=sum(size for _, size, _ in lines),
    )


def files_below(folder: Path) -> dict[str, int]:
    """Size of every file below a folder, by its relative path; links are followed."""
    real = os.path.realpath(folder)
    found = _walk(real, "", frozenset({real}))
    return {path: item.size_bytes for path, item in found.items()}


def _walk(folder: str, below: str, trail: frozenset[str]) -> dict[str, _Found]:
    """`trail`: the real folders on the way here; a link back to one of them is left out."""
    found: dict[str, _Found] = {}
    for name, item in _entries(folder):
        path = f"{below}{name}"
        if isinstance(item, _Found):
            found[path] = item
        elif item not in trail:
            found |= _walk(item, f"{path}/", trail | {item})
        if len(found) > _MAX_FILES:
            raise OSError(0, f"more than {_MAX_FILES} files: no model's folder")
    return found


def _entries(folder: str) -> list[tuple[str, _Found | str]]:
    """Visible files, and folders by their real path. Dangling links and devices are left out."""
    found: list[tuple[str, _Found | str]] = []
    for name in sorted(os.listdir(folder)):
        if name.startswith("."):
            continue
        full = os.path.join(folder, name)
        try:
            status = os.stat(full)
        except FileNotFoundError:
            continue
        if stat.S_ISREG(status.st_mode):
            found.append((name, _Found(status.st_size, status.st_mtime_ns)))
        elif stat.S_ISDIR(status.st_mode):
            found.append((name, os.path.realpath(full)))
    return found


def _main_ref(folder: str, found: dict[str, _Found]) -> str | None:
    path = main_ref_path(found)
    if path is None or found[path].size_bytes > _MAX_REF_BYTES:
        return None
    with open(os.path.join(folder, path), encoding="utf-8", errors="replace") as file:
        return file.read().strip()


def _check_roots(reals: list[str], path: Path, roots: tuple[Path, ...] | None) -> None:
    if roots is None:
        return
    allowed = [os.path.realpath(root) for root in roots]
    for real in reals:
        if not any(os.path.commonpath([root, real]) == root for root in allowed):
            which = f": {', '.join(allowed)}" if allowed else "; it allows none"
            raise Rejected(
                f"cannot use {path}: {real} is outside the folders that this node allows{which}; "
                "its operator starts the agent with --allow-file-root DIR"
            )


def _join(folder: str, path: str) -> str:
    return os.path.join(folder, path) if path else folder
