"""The digest of an object, against which a fetch is checked."""

import hashlib
import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from reconciler.errors import Transient
from reconciler.hub.objects import ObjectRef
from reconciler.hub.parts import Part

_FETCHES = 3
_DAMAGED_RETRY_SECONDS = 3600.0
"""Only a push cures it, and each try fetches it three times."""
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
    """Fetch until the digest is right: bytes may be turned on their way. Raises Transient.

    `doing`: "cannot fetch <key> from <store>".
    """
    for _ in range(_FETCHES):
        if fetch():
            return
    expected = expected_digest(stored)
    name = "digest" if expected is None else expected.algorithm
    raise Transient(
        f"{doing}: its content does not match its {name}, after {_FETCHES} fetches; push it again",
        retry_after_seconds=_DAMAGED_RETRY_SECONDS,
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

    Whoever closes the first gap hashes on from there, from the page cache, as far as parts are
    finished; the others go on fetching meanwhile.
    """

    def __init__(self, algorithm: Algorithm, parts: tuple[Part, ...]) -> None:
        self._hash = _new_hash(algorithm)
        self._parts = parts
        self._finished: set[int] = set()
        self._next = 0
        self._is_busy = False
        self._lock = threading.Lock()

    def add(self, part: Part, read_back: Callable[[Part], Iterable[memoryview]]) -> None:
        """A part is on the disk, or in the page cache."""
        with self._lock:
            self._finished.add(part.index)
            if self._is_busy:
                return
            self._is_busy = True
        while (following := self._take()) is not None:
            for piece in read_back(following):
                self._hash.update(piece)

    def hex(self) -> str:
        """Once every part was added."""
        return self._hash.hexdigest()

    def _take(self) -> Part | None:
        with self._lock:
            if self._next not in self._finished:
                self._is_busy = False
                return None
            self._next += 1
            return self._parts[self._next - 1]


def _new_hash(algorithm: Algorithm) -> "hashlib._Hash":
    return hashlib.new(algorithm.lower(), usedforsecurity=False)
