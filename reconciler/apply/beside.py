"""Work that goes on beside its owner's, and ends with it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any


@asynccontextmanager
async def beside(
    work: Callable[[], Coroutine[Any, Any, None]],
    *,
    name: str,
    end: Callable[[], None],
    end_seconds: float,
) -> AsyncIterator[None]:
    """For as long as the context is open. Then `end` tells it to end, for which it has that time.

    `name`: the task's.
    """
    task = asyncio.create_task(work(), name=name)
    try:
        yield
    finally:
        end()
        await asyncio.wait([task], timeout=end_seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
