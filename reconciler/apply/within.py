"""Waiting for an event, with a limit."""

import asyncio


async def within(seconds: float, event: asyncio.Event) -> bool:
    """Whether it came in that time; returns as soon as it does."""
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
