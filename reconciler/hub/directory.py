"""A hub in a folder: NFS, a USB disk, a laptop."""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from reconciler.errors import Transient
from reconciler.hub.copied_parts import CopiedParts
from reconciler.hub.copying import copy_file
from reconciler.hub.digests import has_digest, until_it_matches
from reconciler.hub.objects import HubObject, Journal, ObjectRef, checked_prefix
from reconciler.hub.rate_limit import UNLIMITED, RateLimit
from reconciler.hub.revision import files_of_revision

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class DirectoryStore:
    """Lists prefixes and copies files; blocking, for threads. Raises Transient.

    Links are followed (a Hugging Face `snapshots/` folder is made of them), never out of the hub.
    `rate`: of the node; what shares its blocks with the hub is no traffic.
    """

    reads_at_once = 1
    """A disk that seeks between files is slower than one that does not."""

    def __init__(self, root: Path, *, rate: RateLimit = UNLIMITED) -> None:
        self.location = str(root)
        self._root = root
        self._rate = rate

    def objects(self, prefix: str, digest: str | None = None) -> tuple[HubObject, ...]:
        """The model's files, sorted by path; empty where the hub has no such prefix.

        `digest`: of the push that is wanted; None: the one in force.
        """
        return files_of_revision(self, prefix, digest)

    def listing(self, prefix: str) -> tuple[HubObject, ...]:
        """All files under `prefix`/, the hub's own too, sorted by path."""
        doing = f"cannot list {checked_prefix(prefix)} in {self.location}"
        root = self._resolved_root(doing)
        try:
            folder = self._inside(root, prefix)
            found = list(self._walk(root, prefix, folder, "", frozenset({folder})))
        except FileNotFoundError as exc:
            if not os.path.lexists(os.path.join(root, prefix)):
                return ()
            raise Transient(f"{doing}: {exc.filename} is missing or a dangling link") from exc
        except NotADirectoryError:
            return ()
        except OSError as exc:
            raise Transient(f"{doing}: {exc.strerror}") from exc
        return tuple(sorted(found, key=lambda item: item.path))

    def prefixes(self) -> tuple[str, ...]:
        """Every prefix that the hub holds, sorted."""
        doing = f"cannot list {self.location}"
        root = self._resolved_root(doing)
        try:
            return tuple(
                f"{top}/{name}"
                for top in _folders(root)
                for name in _folders(os.path.join(root, top))
            )
        except OSError as exc:
            raise Transient(f"{doing}: {exc.strerror}") from exc

    def read(
        self,
        stored: ObjectRef,
        fd: int,
        *,
        on_bytes: Callable[[int], None],
        cancelled: Callable[[], bool],
        journal: Journal | None = None,
    ) -> None:
        """Write all of the file's bytes to `fd`, from where an earlier try has come to.

        `on_bytes` is told how many bytes are there. A file that is not, or does not stay, the one
        that was listed is Transient. OSError for a full disk passes as it is.
        """
        doing = f"cannot fetch {stored.key} from {self.location}"

        def check(count: int = 0) -> None:
            self._rate.take(count, stopped=cancelled)
            if cancelled():
                raise Transient(f"{doing}: it is no longer wanted")

        copied = CopiedParts(journal, stored.size_bytes, on_bytes)

        def fetch() -> bool:
            self._copy(stored, fd, doing, copied, check)
            matches = has_digest(fd, stored, check=check)
            if not matches:
                copied.forget()
            return matches

        until_it_matches(fetch, stored, doing=doing)

    def _copy(
        self,
        stored: ObjectRef,
        fd: int,
        doing: str,
        copied: CopiedParts,
        before_chunk: Callable[[int], None],
    ) -> None:
        root = self._resolved_root(doing)
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            source = os.open(self._inside(root, stored.key), flags)
            try:
                before = _version(os.fstat(source))
                done = copy_file(
                    source,
                    fd,
                    stored.size_bytes,
                    begin=copied.begin(),
                    on_bytes=copied.note,
                    before_chunk=before_chunk,
                )
                after = _version(os.fstat(source))
            finally:
                os.close(source)
        except OSError as exc:
            if exc.errno in _NO_ROOM:
                raise
            raise Transient(f"{doing}: {exc.strerror}") from exc
        if done != stored.size_bytes or not before == after == stored.version:
            copied.forget()
            raise Transient(f"{doing}: it changed while it was fetched")

    def _resolved_root(self, doing: str) -> str:
        try:
            root = os.path.realpath(self._root, strict=True)
        except OSError as exc:
            raise Transient(f"{doing}: {exc.strerror}; is it mounted?") from exc
        if not os.path.isdir(root):
            raise Transient(f"{doing}: it is no directory")
        return root

    def _inside(self, root: str, key: str) -> str:
        """The real path of `key`. Raises Transient where its links lead out of the hub."""
        real = os.path.realpath(os.path.join(root, key), strict=True)
        if os.path.commonpath([root, real]) != root:
            raise Transient(f"cannot use {key} of {self.location}: its link leads out of the hub")
        return real

    def _walk(
        self, root: str, key: str, folder: str, path: str, trail: frozenset[str]
    ) -> Iterator[HubObject]:
        """`trail`: the real folders on the way here; a link back to one of them is left out."""
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries]
        for name in names:
            below_key = f"{key}/{name}"
            below_path = f"{path}/{name}" if path else name
            real = self._inside(root, os.path.join(os.path.relpath(folder, root), name))
            status = os.stat(real)
            if stat.S_ISDIR(status.st_mode):
                if real not in trail:
                    yield from self._walk(root, below_key, real, below_path, trail | {real})
            elif stat.S_ISREG(status.st_mode):
                yield HubObject(
                    path=below_path,
                    key=below_key,
                    size_bytes=status.st_size,
                    version=_version(status),
                )


def _version(status: os.stat_result) -> str:
    return f"{status.st_size}-{status.st_mtime_ns}"


def _folders(folder: str) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(item.name for item in entries if item.is_dir() and item.name[0] != ".")
