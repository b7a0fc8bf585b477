"""Large bodies are read in threads of the proxy's own.

Not in asyncio's default pool: the loop and the starting and stopping of backends wait in that.
"""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from reconciler.proxy.body import Peek, peek
from reconciler.proxy.errors import Problem
from reconciler.proxy.intake import Body

_THREAD_FROM_BYTES = 256 * 1024
"""Smaller bodies are read at once: some 0.5 ms, and 10 ms in the worst case."""
_THREADS = 2


class Peeking:
    """Opened by its first use, closed with the application."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="peek")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def peek(self, body: Body) -> Peek | Problem:
        """Cancelled, it lets go of the body at once, or after the step that a thread is in."""
        if len(body.content) < _THREAD_FROM_BYTES:
            return peek(body.content)
        left = threading.Event()
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(
                self._threads, lambda: peek(body.content, abandoned=left.is_set)
            )
        finally:
            left.set()
