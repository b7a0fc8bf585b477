"""A source that is far away, asked now and then: when it is asked, and what is said while it is
silent.

asked for, told of a change, or due ─▶ read ─▶ as before? ─▶ nothing
                                               another?   ─▶ handed over
                                               away?      ─▶ an error; later and later again
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, replace

import structlog

from reconciler.source.snapshot import Snapshot

_log = structlog.get_logger("xgen.source")

_MAX_PAUSE_SECONDS = 300.0
_JITTER = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`reached`: whether the other side answered; what is wrong in it is an error all the same.

    `wait_seconds`: how long it wants to be left alone; None: it did not say.
    """

    snapshot: Snapshot
    reached: bool
    wait_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """`interval_seconds`: between two looks, give or take a tenth, so that many nodes do not ask at
    the same moment. While it cannot be reached: from `first_retry_seconds` on, doubled up to
    `last_retry_seconds`. `patience_seconds`: after which a first look that goes on is told of.
    """

    interval_seconds: float
    first_retry_seconds: float
    last_retry_seconds: float = _MAX_PAUSE_SECONDS
    patience_seconds: float = 3.0


class Asking:
    """Asks by `ask`, which never raises for what the world is like. `shown`: what is asked.

    `now`: RFC 3339, for people: when it was reached last. `notices`: of the source.
    """

    def __init__(
        self,
        shown: str,
        ask: Callable[[], Awaitable[Answer]],
        pace: Pace,
        *,
        now: Callable[[], str],
        notices: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        self._shown = shown
        self._ask = ask
        self._pace = pace
        self._now = now
        self._notices = notices
        self._reached_at: str | None = None
        self._failures = 0
        self._wait_seconds = 0.0
        self._hint = asyncio.Event()
        self._asked: list[asyncio.Event] = []

    def hint(self) -> None:
        """Make `snapshots` ask now."""
        self._hint.set()

    def look_again(self) -> asyncio.Event:
        """As `hint`. The event is set once a read that began after this call was handed over."""
        asked = asyncio.Event()
        self._asked.append(asked)
        self._hint.set()
        return asked

    async def read(self) -> Snapshot:
        """Ask now."""
        try:
            answer = await self._ask()
        except Exception:  # noqa: BLE001  a source must never be what ends an agent
            _log.exception("the manifest could not be read, by a fault of ours", source=self._shown)
            answer = Answer(
                snapshot=self._error("a fault of ours, which the log has"), reached=False
            )
        self._wait_seconds = answer.wait_seconds or 0.0
        if answer.reached:
            self._failures = 0
            self._reached_at = self._now()
            return answer.snapshot
        self._failures += 1
        return replace(answer.snapshot, error=self._aged(answer.snapshot))

    async def snapshots(self) -> AsyncGenerator[Snapshot, None]:
        """The state now, then each different one; the same again where there are other notices.
        Closed, it has ended its read."""
        shown: Snapshot | None = None
        told: tuple[str, ...] = ()
        reading: asyncio.Task[Snapshot] | None = None
        try:
            while True:
                self._hint.clear()
                asked, self._asked = self._asked, []
                reading = asyncio.create_task(self.read(), name=f"read {self._shown}")
                await asyncio.wait([reading], timeout=self._pace.patience_seconds)
                if shown is None and not reading.done():
                    yield (shown := self._silent())
                snapshot = await reading
                if shown is None or snapshot != shown or told != self._notices():
                    shown = snapshot if snapshot != shown else shown
                    told = self._notices()
                    yield shown
                for each in asked:
                    each.set()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.pause_seconds()):
                        await self._hint.wait()
        finally:
            if reading is not None:
                reading.cancel()
                await asyncio.wait([reading])

    def pause_seconds(self) -> float:
        """Until the next look, by chance within a tenth."""
        pause = self._pace.interval_seconds
        if self._failures:
            doubled = self._pace.first_retry_seconds * 2.0 ** min(self._failures - 1, 16)
            pause = min(doubled, max(self._pace.last_retry_seconds, self._pace.first_retry_seconds))
        pause = max(pause, min(self._wait_seconds, _MAX_PAUSE_SECONDS))
        return pause * random.uniform(1 - _JITTER, 1 + _JITTER)

    def _silent(self) -> Snapshot:
        """Of the start: with it the last good version is in force, and is not waited for."""
        return self._error("it has not answered yet since the agent started")

    def _error(self, cause: str) -> Snapshot:
        error = f"cannot read {self._shown}: {cause}"
        return Snapshot(location=self._shown, revision="", error=error)

    def _aged(self, snapshot: Snapshot) -> str:
        """The same text each time, so that an outage is one event."""
        if self._reached_at is None:
            return f"{snapshot.error}; it was not reached since the agent started"
        return f"{snapshot.error}; it was reached last at {self._reached_at}"
