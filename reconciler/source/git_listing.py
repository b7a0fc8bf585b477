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
    """The files at `path` in a commit that was fetched.

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
            return _read(repository, [(shown_name(path), entry)])
        if entry.mode != _FOLDER:
            cause = _REFUSED.get(entry.mode, "it is a file")
            raise Rejected(f"cannot follow {shown_name(here)} in commit {commit[:12]}: {cause}")
        entries = repository.entries(entry.id)
    prefix = f"{path}/" if path else ""
    return _read(
        repository,
        [(shown_name(prefix + each.name), each) for each in entries if counts(each.name)],
    )


def _read(
    repository: GitRepository, named: Sequence[tuple[str, TreeEntry]]
) -> tuple[SourceFile, ...]:
    if len(named) > MAX_FILES:
        raise Rejected(f"there are {len(named)} files, and {MAX_FILES} at most are read")
    files = [entry.id for _, entry in named if entry.mode in _FILES]
    sizes = repository.sizes(files) if files else {}
    fitting = {id: size for id, size in sizes.items() if size <= MAX_FILE_BYTES}
    if sum(fitting.values()) > MAX_TOTAL_BYTES:
        raise Rejected(f"the files hold more than {MAX_TOTAL_BYTES >> 20} MiB together")
    contents = repository.contents(fitting) if fitting else {}
    return tuple(_file(name, entry, sizes, contents.get(entry.id)) for name, entry in named)


def _file(
    name: str, entry: TreeEntry, sizes: Mapping[str, int], content: bytes | None
) -> SourceFile:
    if entry.mode not in _FILES:
        cause = _REFUSED.get(entry.mode, "it is no regular file")
    elif sizes.get(entry.id, 0) > MAX_FILE_BYTES:
        cause = "it is larger than 1 MiB"
    elif content is None:
        cause = "the server does not give its content"
    elif len(content) <= _MAX_POINTER_BYTES and content.startswith(_LFS):
        cause = "it is a pointer to Git LFS, which is not fetched; commit the file itself"
    else:
        return SourceFile(name=name, content=content)
    return SourceFile(name=name, error=f"cannot read {name}: {cause}")
