"""Forms with files in them: on disk beyond a size, with a limit of all together."""

import os
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import BinaryIO, Protocol, TypeVar

from starlette.types import Receive

from reconciler.proxy import errors, headers
from reconciler.proxy.body import Peek
from reconciler.proxy.client import ClientLeft
from reconciler.proxy.errors import Header, Problem
from reconciler.proxy.form import boundary_of, peek_form
from reconciler.proxy.forward import Pieces

_IN_MEMORY_BYTES = 256 * 1024
_PIECE_BYTES = 256 * 1024

T = TypeVar("T")


class Threads(Protocol):
    """Where what waits for the disk is done."""

    def run(self, job: Callable[[], T]) -> Awaitable[T]: ...


class Spool:
    """Takes in forms. For one event loop.

    `form_bytes`: the largest one. `together_bytes`: of all that are held at one time. The files
    are in the folder for temporary ones (TMPDIR), without names.
    """

    def __init__(self, *, form_bytes: int, together_bytes: int, threads: Threads) -> None:
        self.form_bytes = form_bytes
        self.together_bytes = together_bytes
        self.threads = threads
        self.held_bytes = 0

    def form(self) -> "Form":
        """One that is still to be read. `with` it: it is dropped at the end, if not before."""
        return Form(self)


class Form:
    """One form. What is renamed in it is so on its way out only."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._memory = bytearray()
        self._file: BinaryIO | None = None
        self._boundary = b""
        self._renamed: tuple[int, int, bytes] | None = None
        self.size = 0

    def __enter__(self) -> "Form":
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()

    async def read(self, receive: Receive, given: list[Header]) -> Problem | None:
        """Raises ClientLeft when the client leaves, or is cut off, before its end."""
        limit = self._spool.form_bytes
        declared = headers.first(given, b"content-length")
        if declared is not None and int(declared) > limit:
            return errors.body_too_large(limit)
        types = [value for key, value in given if key == b"content-type"]
        boundary = boundary_of(types[0] if len(types) == 1 else None)
        if isinstance(boundary, Problem):
            return boundary
        self._boundary = boundary
        try:
            return await self._take_in(receive)
        except OSError as exc:
            return errors.no_room_on_disk(exc.strerror or str(exc))

    async def _take_in(self, receive: Receive) -> Problem | None:
        spool, more = self._spool, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientLeft("the client left while it sent its request")
            piece: bytes = message.get("body", b"")
            more = message.get("more_body", False)
            self.size += len(piece)
            spool.held_bytes += len(piece)
            if self.size > spool.form_bytes:
                return errors.body_too_large(spool.form_bytes)
            if spool.held_bytes > spool.together_bytes:
                return errors.bodies_too_large(spool.together_bytes)
            self._memory += piece
            if len(self._memory) > _IN_MEMORY_BYTES or (self._file and not more):
                await spool.threads.run(self._write_out)
        return None

    def look(self, abandoned: Callable[[], bool]) -> Peek | Problem:
        return peek_form(self._read_at, self.size, self._boundary, abandoned=abandoned)

    def text(self) -> bytes | None:
        """A form has none that is worth to be looked at as a whole."""
        return None

    def rename(self, span: tuple[int, int], name: str) -> None:
        self._renamed = (*span, name.encode())

    def outgoing(self) -> Pieces:
        size = self.size
        if self._renamed is not None:
            start, end, name = self._renamed
            size += len(name) - (end - start)
        return Pieces(size_bytes=size, pieces=self._pieces)

    def drop(self) -> None:
        """Nobody needs it any more."""
        self._spool.held_bytes -= self.size
        self.size = 0
        self._memory = bytearray()
        if self._file is not None:
            self._file.close()

    def _write_out(self) -> None:
        if self._file is None:
            self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed by drop
        view = memoryview(self._memory)
        while view:
            view = view[self._file.write(view) :]
        self._memory = bytearray()

    def _read_at(self, place: int, size: int) -> bytes:
        if self._file is None:
            return bytes(self._memory[place : place + size])
        return os.pread(self._file.fileno(), size, place)

    async def _pieces(self) -> AsyncIterator[bytes]:
        place = 0
        if self._renamed is not None:
            start, end, name = self._renamed
            async for piece in self._between(0, start):
                yield piece
            yield name
            place = end
        async for piece in self._between(place, self.size):
            yield piece

    async def _between(self, place: int, end: int) -> AsyncIterator[bytes]:
        while place < end:
            size = min(_PIECE_BYTES, end - place)
            if self._file is None:
                piece = self._read_at(place, size)
            else:
                piece = await self._spool.threads.run(partial(self._read_at, place, size))
            yield piece
            place += len(piece)
