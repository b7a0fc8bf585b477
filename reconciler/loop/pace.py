"""How much of a core the loop takes: rests between ticks, and long work in pieces, for the same
loop of events serves requests."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

REST_RATIO = 5.0
"""Rest to work. What wakes the loop meanwhile is one tick: hundreds of models that retry, each at
its own moment, would else keep a core busy."""
LONGEST_REST_SECONDS = 0.25
SAVED_SECONDS = 1.0
"""Of idle time that counts as rest taken before. A change after a quiet while and an agent's start
are some ticks, one upon the other, and somebody waits for the last of them."""
PIECE = 50
"""Some milliseconds' work, at a line of log each."""
_FEW = 100
"""Models that are planned in some milliseconds."""

T = TypeVar("T")


class Rests:
    """What the loop owes after each tick."""

    def __init__(self) -> None:
        self._saved = SAVED_SECONDS

    def after(self, spent_seconds: float) -> float:
        """Seconds to rest after a tick that took so long."""
        owed = min(spent_seconds * REST_RATIO, LONGEST_REST_SECONDS)
        taken = min(owed, self._saved)
        self._saved -= taken
        return owed - taken

    def idle(self, seconds: float) -> None:
        """Nobody had anything for the loop to do for so long."""
        self._saved = min(SAVED_SECONDS, self._saved + seconds)


async def give_way(number: int) -> None:
    """To be awaited before each item of many, with its number: at times whoever is ready goes
    first."""
    if number % PIECE == PIECE - 1:
        await asyncio.sleep(0)


async def aside(reckon: Callable[[], T], models: int) -> T:
    """What it returns, and in a thread where so many models would hold up the loop of events."""
    return reckon() if models <= _FEW else await asyncio.to_thread(reckon)
