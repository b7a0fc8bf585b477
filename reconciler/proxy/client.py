"""What the client of a request does: it sends a body, perhaps too large, and it may leave."""

import asyncio
from collections.abc import Callable
from types import TracebackType

from starlette.types import Receive, Scope

from reconciler.errors import XgenError
from reconciler.proxy import errors
from reconciler.proxy.errors import Header, Problem
from reconciler.proxy.headers import first


class ClientLeft(XgenError):
    """Nobody waits for the answer any more."""


async def read_body(
    receive: Receive, headers: list[Header], *, limit_bytes: int
) -> bytes | Problem:
    """The whole body. Raises ClientLeft when the client leaves, or is cut off, before its end."""
    declared = first(headers, b"content-length")
    if declared is not None and int(declared) > limit_bytes:
        return errors.body_too_large(limit_bytes)
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft("the client left while it sent its request")
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > limit_bytes:
            return errors.body_too_large(limit_bytes)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return b"".join(chunks)


class Presence:
    """Whether the client is there: its connection says when it leaves, one listener hears it."""

    __slots__ = ("_listener", "gone")

    def __init__(self) -> None:
        self.gone = False
        self._listener: Callable[[], None] | None = None

    def end(self) -> None:
        self.gone = True
        if self._listener is not None:
            self._listener()

    def listen(self, listener: Callable[[], None] | None) -> None:
        self._listener = listener


class WhileClientStays:
    """`with`: cancels its body at the moment the client leaves, and raises ClientLeft.

    Streaming or not, before the first byte or after. litellm#37140: a request without streaming
    whose client had left was never cancelled. claude-code-proxy PR#114: a middleware that wraps
    `receive` hides that the client left; here the connection itself says so, through `presence` in
    the request's state. No task has to wait for it: that was an eighth of a request's cost.
    """

    __slots__ = ("_cancelling", "_left", "_presence", "_task")

    def __init__(self, scope: Scope) -> None:
        self._presence: Presence = scope["state"]["presence"]
        self._left = False

    def __enter__(self) -> None:
        if self._presence.gone:
            raise ClientLeft("the client left before its request was looked at")
        task = asyncio.current_task()
        assert task is not None
        self._task: asyncio.Task[object] = task
        self._cancelling = task.cancelling()
        self._presence.listen(self._leave)

    def _leave(self) -> None:
        self._left = True
        self._task.cancel()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._presence.listen(None)
        if not self._left:
            return
        ours_alone = self._task.uncancel() <= self._cancelling
        if ours_alone and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise ClientLeft("the client left before its answer was complete") from error
