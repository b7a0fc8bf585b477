"""What the client of a request does: it sends a body, perhaps too large, and it may leave."""

import asyncio
from types import TracebackType

from starlette.types import Receive

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


class WhileClientStays:
    """`async with`: cancels its body at the moment the client leaves, and raises ClientLeft.

    Streaming or not, before the first byte or after. litellm#37140: a request without streaming
    whose client had left was never cancelled. claude-code-proxy PR#114: a middleware that wraps
    `receive` hides that the client left, so nothing here does. The server reports the end of an
    answer as a disconnect too: the body must not wait for anything after the last `send`.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._left = False
        self._cancelling = 0

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task: asyncio.Task[object] = task
        self._cancelling = task.cancelling()
        self._watcher = asyncio.create_task(self._watch(), name="client-watcher")

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._left = True
        self._task.cancel()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._watcher.cancel()
        if not self._left:
            return
        ours_alone = self._task.uncancel() <= self._cancelling
        if ours_alone and kind is not None and issubclass(kind, asyncio.CancelledError):
            raise ClientLeft("the client left before its answer was complete") from error
