"""Linux's inotify: which folders had something moved in them, and under which name."""

import ctypes
import errno
import os
import struct
from collections.abc import Iterable, Iterator

_CREATED = 0x100
_DELETED = 0x200
_MODIFIED = 0x2
_ATTRIBUTES = 0x4
_MOVED = 0x40 | 0x80
_SELF_DELETED, _SELF_MOVED = 0x400, 0x800
_ONLY_FOLDERS = 0x01000000
_WANTED = _CREATED | _DELETED | _MODIFIED | _ATTRIBUTES | _MOVED | _SELF_DELETED | _SELF_MOVED
_OVERFLOW, _IGNORED, _UNMOUNTED = 0x4000, 0x8000, 0x2000
_LOST = _SELF_DELETED | _SELF_MOVED | _IGNORED | _UNMOUNTED
_HEAD = struct.Struct("iIII")
_BUFFER = 65536
_USED_UP = {
    errno.EMFILE: "the inotify instances are used up (fs.inotify.max_user_instances)",
    errno.ENOSPC: "the inotify watches are used up (fs.inotify.max_user_watches)",
}

_libc = ctypes.CDLL(None, use_errno=True)


class Inotify:
    """`fd` is readable when there is something to `take`. Raises OSError, whose `strerror` says
    what an operator can do."""

    def __init__(self) -> None:
        self.fd = _checked(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._folders: dict[int, str] = {}

    def watch(self, folders: Iterable[str]) -> None:
        """These and no others from now on; some of them, where it raises."""
        before, self._folders = self._folders, {}
        for folder in folders:
            path = os.fsencode(folder)
            watch = _libc.inotify_add_watch(self.fd, path, _WANTED | _ONLY_FOLDERS)
            self._folders[_checked(watch, folder)] = folder
        for watch in before.keys() - self._folders.keys():
            _libc.inotify_rm_watch(self.fd, watch)  # fails for one that went with its folder

    def take(self) -> Iterator[tuple[str | None, str | None]]:
        """What has moved: a folder and a name in it. The name None: the folder itself went, and is
        watched no more. Both None: so much that nobody knows what."""
        try:
            data = os.read(self.fd, _BUFFER)
        except BlockingIOError:
            return
        at = 0
        while at < len(data):
            watch, mask, _, size = _HEAD.unpack_from(data, at)
            at += _HEAD.size
            name = os.fsdecode(data[at : at + size].rstrip(b"\0"))
            at += size
            if mask & _OVERFLOW:
                yield None, None
            elif watch in self._folders:
                yield self._folders[watch], None if mask & _LOST else name

    def close(self) -> None:
        """For a thread: the kernel may take tens of milliseconds to let go of its watches."""
        os.close(self.fd)


def _checked(result: int, path: str | None = None) -> int:
    if result >= 0:
        return result
    number = ctypes.get_errno()
    raise OSError(number, _USED_UP.get(number, os.strerror(number).lower()), path)
