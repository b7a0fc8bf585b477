"""The digest of an object, against which a fetch is checked."""

import hashlib
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from reconciler.errors import Damaged
from reconciler.hub.objects import ObjectRef
from reconciler.hub.parts import Part

_FETCHES = 3
_PIECE_BYTES = 1 << 20

Algorithm = Literal["sha256", "MD5"]


@dataclass(frozen=True, slots=True)
class Digest:
    algorithm: Algorithm
    hex: str


def expected_digest(stored: ObjectRef) -> Digest | None:
    """The strongest that is known of it; None: its size is all there is to compare."""
    if stored.sha256 is not None:
        return Digest("sha256", stored.sha256)
    return None if stored.md5 is None else Digest("MD5", stored.md5)


def until_it_matches(fetch: Callable[[], bool], stored: ObjectRef, *, doing: str) -> None:
    """Fetch until the digest is right: bytes may be turned on their way. Raises Damaged.

    `doing`: "cannot fetch <key> from <store>".
    """
    for _ in range(_FETCHES):
        if fetch():
            return
    expected = expected_digest(stored)
    name = "digest" if expected is None else expected.algorithm
    raise Damaged(
        f"{doing}: its content does not match its {name}, after {_FETCHES} fetches; push it again, "
        "with `hub push --again`"
    )


def has_digest(fd: int, stored: ObjectRef, *, check: Callable[[], None]) -> bool:
    """Whether a whole file matches the digest of its object, where one is known.

    `check`: called before each piece; it may raise to end it.
    """
    expected = expected_digest(stored)
    if expected is None:
        return True
    found = _new_hash(expected.algorithm)
    buffer = memoryview(bytearray(_PIECE_BYTES))
    offset = 0
    while count := os.preadv(fd, [buffer], offset):
        check()
        found.update(buffer[:count])
        offset += count
    return found.hexdigest() == expected.hex


class InOrderDigest:
    """The digest of a file whose parts are finished in any order; thread-safe.

    Whoever fetches the part that comes next leads: it hashes its bytes as they come. What others
    have finished meanwhile is read back from the page cache, by one thread at a time.
    `finished`: the indexes of parts that are there already.
    """

    def __init__(
        self, algorithm: Algorithm, parts: tuple[Part, ...], finished: Iterable[int]
    ) -> None:
        self._hash = _new_hash(algorithm)
        self._parts = parts
        self._finished = set(finished)
        self._next = 0
        self._is_busy = False
        self._lock = threading.Lock()

    def lead(self, part: Part) -> bool:
        """Whether the caller may hash this part by `update`, from its first byte to its last."""
        if self._next != part.index:
            return False
        with self._lock:
            leads = self._next == part.index and not self._is_busy
            self._is_busy = self._is_busy or leads
            return leads

    def update(self, piece: memoryview) -> None:
        """By the one who leads."""
        self._hash.update(piece)

    def finish(self, part: Part, *, led: bool) -> None:
        """All bytes of a part are on the disk, or in the page cache; `led`: and hashed."""
        with self._lock:
            self._finished.add(part.index)
            if led:
                self._next += 1
                self._is_busy = False

    def go_on(self, read_back: Callable[[Part], Iterable[memoryview]]) -> None:
        """Hash what is finished, up to the first gap, unless another thread is about it."""
        while (part := self._take()) is not None:
            for piece in read_back(part):
                self._hash.update(piece)
            self.finish(part, led=True)

    def hex(self) -> str:
        """Once every part was finished, and each who finished one has gone on."""
        return self._hash.hexdigest()

    def _take(self) -> Part | None:
        with self._lock:
            if self._is_busy or self._next not in self._finished:
                return None
            self._is_busy = True
            return self._parts[self._next]


def _new_hash(algorithm: Algorithm) -> "hashlib._Hash":
    return hashlib.new(algorithm.lower(), usedforsecurity=False)
