"""Answers without an end of their own: events and logs as they come.

Each ends with its client, or with the agent. A client that does not read holds one chunk, no more.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.types import Scope, Send

from reconciler.proxy import errors
from reconciler.proxy.client import ClientLeft, WhileClientStays
from reconciler.proxy.errors import Problem

_MOST = 64
"""Such answers at a time: anybody who reaches the port may ask for one."""
_HEARTBEAT_SECONDS = 15.0
"""Below the idle limits of usual load balancers."""


class Streams:
    """`ending`: set when the agent ends."""

    def __init__(
        self,
        ending: asyncio.Event,
        *,
        most: int = _MOST,
        heartbeat_seconds: float = _HEARTBEAT_SECONDS,
    ) -> None:
        self._ending = ending
        self._most = most
        self._heartbeat_seconds = heartbeat_seconds
        self._open = 0

    async def send(
        self,
        scope: Scope,
        send: Send,
        *,
        content_type: bytes,
        chunks: AsyncGenerator[bytes, None],
        heartbeat: bytes = b"",
    ) -> Problem | None:
        """Send the chunks as they come. `heartbeat`: sent while none does; empty: nothing is."""
        async with aclosing(chunks):
            if self._open >= self._most:
                return errors.too_many_followers(self._most)
            self._open += 1
            try:
                with WhileClientStays(scope):
                    await send(_head(content_type))
                    if scope["method"] != "HEAD":
                        await self._pass_on(chunks, send, heartbeat)
                    await send({"type": "http.response.body", "body": b""})
            except ClientLeft:
                return None
            finally:
                self._open -= 1
        return None

    async def _pass_on(
        self, chunks: AsyncGenerator[bytes, None], send: Send, heartbeat: bytes
    ) -> None:
        pause = self._heartbeat_seconds if heartbeat else None
        ended = asyncio.create_task(self._ending.wait(), name="stream:ending")
        coming = asyncio.create_task(_next(chunks), name="stream:next")
        try:
            while True:
                await asyncio.wait(
                    (coming, ended), timeout=pause, return_when=asyncio.FIRST_COMPLETED
                )
                if coming.done():
                    chunk = coming.result()
                    if chunk is None:
                        return
                    coming = asyncio.create_task(_next(chunks), name="stream:next")
                elif ended.done():
                    return
                else:
                    chunk = heartbeat
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        finally:
            ended.cancel()
            coming.cancel()
            await asyncio.gather(ended, coming, return_exceptions=True)


async def _next(chunks: AsyncGenerator[bytes, None]) -> bytes | None:
    return await anext(chunks, None)


def _head(content_type: bytes) -> dict[str, object]:
    headers = [
        (b"content-type", content_type),
        (b"cache-control", b"no-cache"),
        (b"x-accel-buffering", b"no"),
    ]
    return {"type": "http.response.start", "status": 200, "headers": headers}
