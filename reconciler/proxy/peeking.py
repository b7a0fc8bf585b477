"""Large bodies are read in threads of the proxy's own.

Not in asyncio's default pool: the loop and the starting and stopping of backends wait in that.
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from reconciler.proxy.body import Peek
from reconciler.proxy.errors import Problem

_THREAD_FROM_BYTES = 256 * 1024
"""Smaller bodies are read at once: some 0.5 ms, and 10 ms in the worst case."""
_THREADS = 2

T = TypeVar("T")


class Readable(Protocol):
    @property
    def size(self) -> int: ...

    def look(self, abandoned: Callable[[], bool]) -> Peek | Problem:
        """What it says of its routing. May raise Abandoned soon after `abandoned()`."""


class Peeking:
    """Opened by its first use, closed with the application."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="peek")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def run(self, job: Callable[[], T]) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, job)

    async def do(self, job: Callable[[], T], *, size: int) -> T:
        """At once where `size`, of the body that it reads, is small."""
        return job() if size < _THREAD_FROM_BYTES else await self.run(job)

    async def peek(self, body: Readable) -> Peek | Problem:
        """Cancelled, it lets go of the body at once, or after the step that a thread is in."""
        if body.size < _THREAD_FROM_BYTES:
            return body.look(lambda: False)
        left = threading.Event()
        try:
            return await self.run(lambda: body.look(left.is_set))
        finally:
            left.set()
