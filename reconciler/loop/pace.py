"""Long work on the event loop, in pieces: the same loop serves requests."""

import asyncio

PIECE = 50
"""Some milliseconds' work, at a line of log each."""


async def give_way(number: int) -> None:
    """To be awaited before each item of many, with its number: at times whoever is ready goes
    first."""
    if number % PIECE == PIECE - 1:
        await asyncio.sleep(0)
