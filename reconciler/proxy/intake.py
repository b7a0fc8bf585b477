"""Bodies of requests in memory: each has a limit, and so have all of them together."""

import io
from collections.abc import Callable

from starlette.types import Receive

from reconciler.proxy import errors
from reconciler.proxy.body import Peek, peek, rename
from reconciler.proxy.client import ClientLeft
from reconciler.proxy.errors import Header, Problem
from reconciler.proxy.headers import first

_SMALL_BYTES = 64 * 1024
"""So much of each body is not counted: large ones never keep small ones out."""


class Intake:
    """Takes in the bodies of requests. For one event loop.

    `body_bytes`: the largest one. `together_bytes`: of all that are held at one time.
    """

    def __init__(self, *, body_bytes: int, together_bytes: int) -> None:
        self.body_bytes = body_bytes
        self.together_bytes = together_bytes
        self._held = 0

    def body(self) -> "Body":
        """One that is still to be read. `with` it: it is dropped at the end, if not before."""
        return Body(self)

    def take(self, size: int) -> bool:
        if self._held + size > self.together_bytes:
            return False
        self._held += size
        return True

    def give_back(self, size: int) -> None:
        self._held -= size


class Body:
    """One body: its `content`, until it is dropped."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._taken = 0
        self.content = b""

    def __enter__(self) -> "Body":
        return self

    def __exit__(self, *_: object) -> None:
        self.drop()

    async def read(self, receive: Receive, headers: list[Header]) -> Problem | None:
        """Raises ClientLeft when the client leaves, or is cut off, before its end."""
        limit = self._intake.body_bytes
        declared = first(headers, b"content-length")
        if declared is not None and int(declared) > limit:
            return errors.body_too_large(limit)
        buffer, size, more = io.BytesIO(), 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientLeft("the client left while it sent its request")
            piece: bytes = message.get("body", b"")
            more = message.get("more_body", False)
            size += len(piece)
            if size > limit:
                return errors.body_too_large(limit)
            if not self._count(size):
                return errors.bodies_too_large(self._intake.together_bytes)
            if size == len(piece) and not more:
                self.content = piece
                return None
            buffer.write(piece)
        self.content = buffer.getvalue()
        return None

    @property
    def size(self) -> int:
        return len(self.content)

    def look(self, abandoned: Callable[[], bool]) -> Peek | Problem:
        return peek(self.content, abandoned=abandoned)

    def text(self) -> bytes | None:
        return self.content

    def rename(self, span: tuple[int, int], name: str) -> None:
        self.content = rename(self.content, span, name)

    def outgoing(self) -> bytes:
        return self.content

    def drop(self) -> None:
        """Nobody needs the content any more."""
        self.content = b""
        self._intake.give_back(self._taken)
        self._taken = 0

    def _count(self, size: int) -> bool:
        if size <= _SMALL_BYTES:
            return True
        more = max(0, size - _SMALL_BYTES) - self._taken
        if not self._intake.take(more):
            return False
        self._taken += more
        return True
