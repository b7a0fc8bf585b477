"""The files of one commit that are the manifest, read from git's objects; nothing is checked out.

A folder is read as a directory on disk is: `*.yaml`, `*.yml` and `*.json`, not recursively. What
would lead out of the commit (a link, a submodule, a pointer to Git LFS) is refused, by its path.
"""

from collections.abc import Mapping, Sequence

from reconciler.errors import Rejected
from reconciler.source.git_repository import GitRepository, TreeEntry
from reconciler.source.listing import MAX_FILE_BYTES, counts
from reconciler.source.names import shown_name
from reconciler.source.snapshot import SourceFile

MAX_FILES = 1000
MAX_TOTAL_BYTES = 64 << 20
_FOLDER = "040000"
_FILES = ("100644", "100755", "100664")
_REFUSED = {
    "120000": "it is a symbolic link, and no link is followed in a git repository",
    "160000": "it is a submodule, and those are not fetched",
    _FOLDER: "it is a directory",
}
_LFS = b"version https://git-lfs.github.com/spec/"
_MAX_POINTER_BYTES = 1024


def read_commit(repository: GitRepository, commit: str, path: str) -> tuple[SourceFile, ...]:
    """The files at `path` in a commit that was fetched: those of a folder by their names alone, as
    a directory has them, so that a manifest that moves between the two stays the same files.

    Raises Rejected where there is no such place in it, or too much; GitFailed.
    """
    entries = repository.entries(commit)
    parts = path.split("/") if path else []
    for depth, part in enumerate(parts, start=1):
        here = "/".join(parts[:depth])
        entry = next((each for each in entries if each.name == part), None)
        if entry is None:
            raise Rejected(f"there is no {shown_name(here)} in commit {commit[:12]}")
        if depth == len(parts) and entry.mode in _FILES:
            return _read(repository, "", [(shown_name(path), entry)])
        if entry.mode != _FOLDER:
            cause = _REFUSED.get(entry.mode, "it is a file")
            raise Rejected(f"cannot follow {shown_name(here)} in commit {commit[:12]}: {cause}")
        entries = repository.entries(entry.id)
    prefix = shown_name(f"{path}/") if path else ""
    named = [(shown_name(each.name), each) for each in entries if counts(each.name)]
    return _read(repository, prefix, named)


def _read(
    repository: GitRepository, prefix: str, named: Sequence[tuple[str, TreeEntry]]
) -> tuple[SourceFile, ...]:
    if len(named) > MAX_FILES:
        raise Rejected(f"there are {len(named)} files, and {MAX_FILES} at most are read")
    ids = [entry.id for _, entry in named if entry.mode in _FILES]
    sizes = repository.sizes(ids) if ids else {}
    fitting = {id: size for id, size in sizes.items() if size <= MAX_FILE_BYTES}
    if sum(fitting.values()) > MAX_TOTAL_BYTES:
        raise Rejected(f"the files hold more than {MAX_TOTAL_BYTES >> 20} MiB together")
    contents = repository.contents(fitting) if fitting else {}
    files = []
    for name, entry in named:
        content = contents.get(entry.id)
        error = None
        if (cause := _refused(entry, sizes, content)) is not None:
            content, error = None, f"cannot read {prefix}{name}: {cause}"
        files.append(SourceFile(name=name, content=content, error=error))
    return tuple(files)


def _refused(entry: TreeEntry, sizes: Mapping[str, int], content: bytes | None) -> str | None:
    """Why it is not taken."""
    if entry.mode not in _FILES:
        return _REFUSED.get(entry.mode, "it is no regular file")
    if sizes.get(entry.id, 0) > MAX_FILE_BYTES:
        return "it is larger than 1 MiB"
    if content is None:
        return "the server does not give its content"
    if len(content) <= _MAX_POINTER_BYTES and content.startswith(_LFS):
        return "it is a pointer to Git LFS, which is not fetched; commit the file itself"
    return None
