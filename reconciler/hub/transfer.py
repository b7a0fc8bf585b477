"""One object, fetched over several connections at once into a file.

runs of parts ──> workers (threads) ──> pwrite ──> digest, in order ──> journal
              └─ each with a place among the node's connections
"""

import errno
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from reconciler.errors import Transient
from reconciler.hub.connections import Connections, Share
from reconciler.hub.digests import InOrderDigest, expected_digest
from reconciler.hub.gate import Abandoned, Gate
from reconciler.hub.objects import Journal, ObjectRef
from reconciler.hub.parts import Part, Runs, part_bytes_for, parts_of
from reconciler.hub.ranged_get import Body, Interrupted, RangedGets
from reconciler.hub.rate_limit import RateLimit
from reconciler.hub.reserve import reserve

_SMALLEST_SLICE_BYTES = 1 << 16
_LARGEST_SLICE_BYTES = 1 << 20
_SLICE_SECONDS = 0.1
"""How long a slice may take to come, about: what has come is told between two."""
_BARREN_TRIES = 4
_CUT_PAUSE_SECONDS = 0.1
_OVERLOADED_PAUSE_SECONDS = 0.3
_LOOK_SECONDS = 0.1
_TELL_SECONDS = 0.02
"""Waking the caller for every slice costs a tenth of the CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What all fetches of a node share."""

    gets: RangedGets
    connections: Connections
    rate: RateLimit


@dataclass(slots=True)
class _Fetched:
    """How far a worker has come, in which part of its run. `leads`: it hashes what comes."""

    run: tuple[Part, ...]
    part: Part
    end: int
    leads: bool = False

    @property
    def missing_bytes(self) -> int:
        return self.run[-1].end - self.end


class Transfer:
    """One try at one object. `doing`: "cannot fetch <key> from <store>"."""

    def __init__(
        self, line: Line, stored: ObjectRef, fd: int, journal: Journal | None, *, doing: str
    ) -> None:
        self._line = line
        self._stored = stored
        self._fd = fd
        self._journal = journal
        self._doing = doing
        self._gate = Gate()
        self._changed = threading.Condition()
        self._done = 0
        self._on_bytes: Callable[[int], None] = lambda _done: None
        self._told: int | None = None
        self._woken_at = 0.0
        self._working = 0
        self._failure: BaseException | None = None
        self._bodies: set[Body] = set()
        self._there: frozenset[int] = frozenset()
        self._parts: tuple[Part, ...] = ()
        self._runs = Runs(())
        self._digest: InOrderDigest | None = None
        self._etag_is_md5 = True
        self._by_ranges = True

    def run(
        self,
        on_bytes: Callable[[int], None],
        cancelled: Callable[[], bool],
        *,
        by_ranges: bool = True,
    ) -> bool:
        """Bring every byte. False: they do not match the digest. Raises Transient, NoRanges.

        OSError from writing passes as it is. What is finished stays in the journal. `by_ranges`:
        False: by one GET, for a store that knows no ranges.
        """
        self._by_ranges = by_ranges
        self._on_bytes = on_bytes
        self._plan()
        reserve(self._fd, self._stored.size_bytes)
        expected = expected_digest(self._stored)
        if expected is not None:
            self._digest = InOrderDigest(expected.algorithm, self._parts, self._there)
        self._working = min(self._line.connections.limit, len(self._parts))
        with self._line.connections.for_a_fetch() as share:
            try:
                for _ in range(self._working):
                    threading.Thread(
                        target=self._work, args=(share,), name="transfer", daemon=True
                    ).start()
                self._watch(cancelled)
            finally:
                self._gate.close()
                with self._changed:
                    for body in self._bodies:
                        body.interrupt()
        if expected is None or self._digest is None:
            return True
        if expected.algorithm == "MD5" and not self._etag_is_md5:
            return True
        return self._digest.hex() == expected.hex

    def _plan(self) -> None:
        size = self._stored.size_bytes
        part_bytes = part_bytes_for(size) if self._by_ranges else max(size, 1)
        if size <= part_bytes:
            self._journal = None  # nothing to go on from
        if self._journal is not None:
            part_bytes, there = self._journal.begin(part_bytes)
            self._there = frozenset(there)
        self._parts = parts_of(size, part_bytes)
        self._runs = Runs(part for part in self._parts if part.index not in self._there)
        self._done = sum(part.size_bytes for part in self._parts if part.index in self._there)

    def _watch(self, cancelled: Callable[[], bool]) -> None:
        """Until the workers have ended, or one has failed."""
        while True:
            with self._changed:
                ended, failure = self._working == 0, self._failure
            if cancelled():
                raise Transient(f"{self._doing}: it is no longer wanted")
            self._tell()
            if failure is not None:
                raise failure
            if ended:
                return
            with self._changed:
                if (self._done, self._failure) == (self._told, None) and self._working:
                    self._changed.wait(_LOOK_SECONDS)

    def _work(self, share: Share) -> None:
        try:
            self._hash_on()
            while True:
                with share.one(self._gate.check):  # before a run is chosen: they come in order
                    run = self._next(share)
                    if not run:
                        return
                    self._bring(run)
                self._hash_on()
        except Abandoned:
            return
        except BaseException as exc:  # noqa: BLE001  the thread's boundary: it is raised above
            with self._changed:
                self._failure = self._failure or exc
        finally:
            with self._changed:
                self._working -= 1
                self._changed.notify()

    def _hash_on(self) -> None:
        if self._digest is not None:
            self._digest.go_on(self._read_back)

    def _next(self, share: Share) -> tuple[Part, ...]:
        with self._changed:
            return self._runs.take(share.equal) if self._failure is None else ()

    def _bring(self, run: tuple[Part, ...]) -> None:
        """All of a run, over as many connections as it takes."""
        got = _Fetched(run, run[0], run[0].offset)
        barren = 0
        while True:
            before = got.end
            interrupted = self._continue(got)
            if interrupted is None:
                return
            progressed = self._by_ranges and got.end > before
            barren = 0 if progressed else barren + 1
            if barren == _BARREN_TRIES:
                raise Transient(
                    f"{interrupted.cause}, at {got.end} of {self._stored.size_bytes} bytes",
                    retry_after_seconds=interrupted.cause.retry_after_seconds,
                )
            self._pause(barren, overloaded=interrupted.overloaded)

    def _continue(self, got: _Fetched) -> Interrupted | None:
        """One GET, for what is missing of a run; None: nothing is missing now."""
        if not self._by_ranges:
            self._count(-got.end)
            got.end = 0
        self._line.connections.wait_until_open(self._gate.check)
        try:
            with (
                self._line.gets.body(self._stored, got.end, got.missing_bytes, self._doing) as body,
                self._interruptible(body),
            ):
                self._etag_is_md5 = self._etag_is_md5 and body.etag_is_md5
                self._take(body, got)
        except Interrupted as exc:
            return exc
        if got.missing_bytes == 0:
            return None
        return Interrupted(Transient(f"{self._doing}: the connection was cut"))

    def _take(self, body: Body, got: _Fetched) -> None:
        """Write what comes, to the end of the run or of the answer."""
        buffer = memoryview(bytearray(min(_LARGEST_SLICE_BYTES, got.part.size_bytes)))
        slice_bytes = _SMALLEST_SLICE_BYTES
        while got.missing_bytes:
            wanted = buffer[: min(slice_bytes, got.part.end - got.end)]
            self._line.rate.take(len(wanted), stopped=self._gate.is_closed)
            began = time.monotonic()
            came = wanted[: body.readinto(wanted)]
            if not came:
                return
            if time.monotonic() - began > _SLICE_SECONDS:
                slice_bytes = max(_SMALLEST_SLICE_BYTES, slice_bytes // 2)
            else:
                slice_bytes = min(_LARGEST_SLICE_BYTES, slice_bytes * 2)
            with self._gate:
                _write(self._fd, came, got.end)
            self._hash(came, got)
            got.end += len(came)
            self._count(len(came))
            if got.end == got.part.end:
                self._finish(got)

    def _finish(self, got: _Fetched) -> None:
        """A part of the run is there, and the next one is to come, if there is one."""
        part = got.part
        if self._digest is not None:
            self._digest.finish(part, led=got.leads)
        if self._journal is not None:
            with self._gate, self._changed:
                self._tell()  # what the journal has, and only that, is known without being told
                self._journal.finished(part.index)
        if part is not got.run[-1]:
            got.part = self._parts[part.index + 1]
            got.leads = False

    def _hash(self, came: memoryview, got: _Fetched) -> None:
        """Now, while the processor still has it at hand, where all before it is hashed."""
        if self._digest is None or not self._by_ranges:
            return
        if not got.leads and self._digest.lead(got.part):
            got.leads = True
            before = Part(got.part.index, got.part.offset, got.end - got.part.offset)
            for piece in self._read_back(before):
                self._digest.update(piece)
        if got.leads:
            self._digest.update(came)

    def _pause(self, barren: int, *, overloaded: bool) -> None:
        """Longer each time, and not the same for all who were cut at once."""
        factor = 2**barren * random.uniform(0.5, 1.0)
        if overloaded:
            self._line.connections.hold_off(_OVERLOADED_PAUSE_SECONDS * factor)
        elif barren:
            self._gate.wait(_CUT_PAUSE_SECONDS * factor)

    @contextmanager
    def _interruptible(self, body: Body) -> Iterator[None]:
        with self._changed:
            self._bodies.add(body)
        try:
            self._gate.check()
            yield
        finally:
            with self._changed:
                self._bodies.discard(body)

    def _tell(self) -> None:
        with self._changed:
            if self._done != self._told:
                self._told = self._done
                self._on_bytes(self._done)

    def _count(self, difference: int) -> None:
        with self._changed:
            self._done += difference
            now = time.monotonic()
            if now - self._woken_at >= _TELL_SECONDS:
                self._woken_at = now
                self._changed.notify()

    def _read_back(self, part: Part) -> Iterator[memoryview]:
        """What the file holds of a part, piece by piece, each valid until the next."""
        buffer = memoryview(bytearray(min(_LARGEST_SLICE_BYTES, part.size_bytes)))
        offset = part.offset
        while offset < part.end:
            with self._gate:
                count = os.preadv(self._fd, [buffer[: min(len(buffer), part.end - offset)]], offset)
            if count == 0:
                raise OSError(errno.EIO, "the file was cut while it was written")
            yield buffer[:count]
            offset += count


def _write(fd: int, piece: memoryview, offset: int) -> None:
    while piece:
        written = os.pwrite(fd, piece, offset)
        piece = piece[written:]
        offset += written
