"""A loop that ticks when it is told to."""

import asyncio

from reconciler.node.board import Board
from reconciler.node.parts import Parts


async def until_engines_are_known(parts: Parts, board: Board) -> None:
    """Till then nothing is started, and each tick may find news."""
    async with asyncio.timeout(30):
        while board.current().engines is None:
            await parts.reconciler.tick()
            await asyncio.sleep(0.02)
