"""Full collections of Python's garbage: while nobody waits for the agent.

One walks over every object that came after the start, and all threads wait for it: 30 to 70 ms
where 1,000 models are to run here. It finds next to nothing, some hundred objects of 130,000, for
what is read, planned and published is freed without it; so it can wait for a rest.

Python 3.11 to 3.13, and 3.14 from 3.14.5 on, would make them at any moment: the thresholds of
`cli.garbage` leave them to us, but for an agent that never rests. 3.14.0 to 3.14.4 walk in small
pieces instead: there ours are some more, and do no harm.
"""

import asyncio
import gc
import os
from collections.abc import Callable
from pathlib import Path

import structlog

from reconciler.apply.backends import Backends
from reconciler.loop.intent import Intent
from reconciler.metrics import FullCollection

_log = structlog.get_logger("xgen.node")

LOOK_SECONDS = 5.0
QUIET_SECONDS = 10.0
"""Since the last news: who has just changed something waits for what comes of it."""
DUE = 300
"""Collections of the middle generation since the last full one, of 20,000 objects each: some 50
changes of a manifest of 1,000 models that are to run here."""
GROWTH_BYTES = 256 * 1024 * 1024
"""Of memory since the last full collection. Then it is made whoever waits: garbage might be what
grows."""
_MIDDLE, _FULL = 1, 2


class FullCollections:
    """`busy`: whether a request is under way. `news`: what is as it was unless something has just
    changed. `clock`: monotonic seconds. `count`: is told of each, Python's own too."""

    def __init__(
        self,
        *,
        busy: Callable[[], bool],
        news: Callable[[], object],
        clock: Callable[[], float],
        count: Callable[[FullCollection], None],
        growth_bytes: int = GROWTH_BYTES,
    ) -> None:
        self._busy = busy
        self._news = news
        self._clock = clock
        self._count = count
        self._growth_bytes = growth_bytes
        self._known = news()
        self._new_at = clock()
        self._note()

    async def run(self) -> None:
        """Look, for ever."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        """Make a full collection if it is due and nobody waits, or if memory has grown too far."""
        now, known = self._clock(), self._news()
        if known != self._known:
            self._known, self._new_at = known, now
        if _made(_FULL) != self._full:
            self._count(FullCollection.PYTHON)
            self._note()
        if _resident_bytes() - self._resident >= self._growth_bytes:
            self._collect(FullCollection.MEMORY)
        elif (
            _made(_MIDDLE) - self._middle >= DUE
            and now - self._new_at >= QUIET_SECONDS
            and not self._busy()
        ):
            self._collect(FullCollection.REST)

    def _collect(self, cause: FullCollection) -> None:
        began = self._clock()
        found = gc.collect()
        _log.debug(
            "a full collection of garbage was made",
            cause=cause.value,
            found=found,
            ms=round((self._clock() - began) * 1e3, 1),
        )
        self._count(cause)
        self._note()

    def _note(self) -> None:
        """The last one was now."""
        self._full, self._middle = _made(_FULL), _made(_MIDDLE)
        self._resident = _resident_bytes()


def news_of(intent: Intent, backends: Backends) -> object:
    """Which manifest is in force, and what runs and serves."""
    running = frozenset((view.nonce, view.loaded_at) for view in backends.live())
    return intent.understanding.revision, running


def _made(generation: int) -> int:
    """Collections of it since the process began."""
    return int(gc.get_stats()[generation]["collections"])


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
