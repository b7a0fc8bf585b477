"""Keeps what models need: pins, room for what comes, files that are as they were pushed."""

import errno
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from reconciler.cache.amounts import human
from reconciler.cache.budget import Budget
from reconciler.cache.doubt import accept, doubted
from reconciler.cache.evict import remove_all_aside
from reconciler.cache.foresight import Arrival
from reconciler.cache.layout import Layout
from reconciler.cache.mend import Tell, check, mend
from reconciler.cache.news import FilesEvicted, Harmed, News
from reconciler.cache.pin_board import ALIVE_SECONDS, Owner, PinBoard
from reconciler.cache.pins import Holding, Pins
from reconciler.cache.room import Room
from reconciler.cache.stamps import Stamp, stamp_unseen
from reconciler.cache.usage import Usage
from reconciler.errors import Transient
from reconciler.file_lock import held
from reconciler.plan.evictions import Evictions

_log = structlog.get_logger(__name__)

_NOT_WRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM)


class Keeper:
    """Of one cache. Any thread may ask."""

    def __init__(self, layout: Layout, usage: Usage, owner: Owner, budget: Budget | None) -> None:
        self._layout = layout
        self._usage = usage
        self._board = PinBoard(layout, owner)
        self._said: Pins | None = None
        self._said_at = 0.0
        self.unsaid = False
        """What models need could not be written down; it is tried again."""
        self.outdated = False
        """Since it was said, a download has begun, of files that were not known before."""
        self._news: list[News] = []
        self._lock = threading.Lock()
        self.room = Room(layout, usage, self._board, budget, self._note)

    @property
    def budget_bytes(self) -> int | None:
        return self.room.budget_bytes

    def open(self) -> None:
        """Finish what processes that are gone left half done. Raises OSError."""
        self.room.look_at_disk()
        remove_all_aside(self._layout)
        stamp_unseen(self._layout)

    def foresee(self, arrivals: Sequence[Arrival], own: Pins) -> Evictions:
        """What these downloads would evict, if this agent needed `own`, and which find no room.
        Blocking; evicts nothing. Raises Transient."""
        try:
            return self.room.foresee(arrivals, own)
        except OSError as exc:
            raise Transient(
                f"cannot tell what would be evicted from {self._layout.models}: {exc.strerror}"
            ) from exc

    def look_again(self) -> None:
        """A command may have made the cache smaller."""
        if self.over_budget() is not None:
            self._usage.measure()

    def pin(self, pins: Pins) -> bool:
        """From now on these files stay. Whether something else may go now that had to stay.

        Where the models folder cannot be written, nothing in it can be evicted either.
        """
        before, now = self._said, time.monotonic()
        if before == pins and not self.unsaid and now - self._said_at < ALIVE_SECONDS:
            return False
        try:
            if before == pins and not self.unsaid:
                self._board.alive()
            else:
                self._board.say(pins, self.budget_bytes)
            self.unsaid = False
        except OSError as exc:
            if not self.unsaid:
                _log.warning("what models need cannot be noted", cause=exc.strerror)
            self.unsaid = True
        self._said, self._said_at = pins, now
        return before is not None and before.misses(pins)

    @property
    def said(self) -> Pins | None:
        """What was said last; None: nothing yet."""
        return self._said

    def mend(
        self,
        holdings: tuple[Holding, ...],
        on_progress: Tell,
        cancelled: Callable[[], bool],
        *,
        unsure_because: str | None = None,
    ) -> Mapping[str, Stamp]:
        """Check files of one prefix that look changed, as `mend` in its module does.

        `unsure_because`: why no hub can give what nobody can tell of; None: one may.

        Gives the stamps, by absolute path, that a folder which cannot be written does not take.
        """
        try:
            with held(self._layout.lock(holdings[0].prefix), cancelled=cancelled):
                for holding in holdings:
                    for told in mend(
                        self._layout,
                        holding,
                        on_progress=on_progress,
                        cancelled=cancelled,
                        comes_again=unsure_because is None,
                    ):
                        self.tell(told)
                    if unsure_because is not None:
                        unsure = doubted(self._layout, holding)
                        accept(self._layout, holding, unsure, cause=unsure_because, tell=self.tell)
            return {}
        except OSError as exc:
            if exc.errno not in _NOT_WRITABLE:
                raise
        return check(self._layout, holdings, on_progress=on_progress, cancelled=cancelled)

    def inodes(self, holding: Holding) -> tuple[int | None, ...]:
        """Of the files of a holding, by their paths; None for one that has gone."""
        folder = self._layout.folder(holding.prefix, holding.digest)
        return tuple(_inode(folder / path) for path in sorted(holding.paths))

    def revisions(self, prefix: str) -> Path:
        """The folder of all that is cached of a prefix."""
        return self._layout.revisions(prefix)

    def relieve(self) -> None:
        """Give room on a full disk, as far as that can be."""
        try:
            self.room.relieve()
        except OSError as exc:
            _log.warning("a full disk cannot be relieved", cause=exc.strerror)

    def over_budget(self) -> str | None:
        """What to say of a cache that is too large. It is made smaller by the next download."""
        budget = self.budget_bytes
        if budget is None or (used := self._usage.bytes) <= budget:
            return None
        return (
            f"the cache has {human(used)}, its budget is {human(budget)}; the next download makes "
            "it smaller, or `xgen-model cache gc`"
        )

    def take_news(self) -> tuple[News, ...]:
        """What was done since the last call."""
        with self._lock:
            news = tuple(self._news)
            self._news.clear()
        return news

    def tell(self, news: News) -> None:
        """As `take_news` gives it, with the models that it is about."""
        if not isinstance(news, FilesEvicted):
            news = replace(news, models=self._users(news))
        self._note(news)

    def _note(self, news: News) -> None:
        with self._lock:
            self._news.append(news)

    def _users(self, harmed: Harmed) -> tuple[str, ...]:
        """The models of this agent that need it."""
        if self._said is None:
            return ()
        return tuple(sorted(self._said.models(harmed.prefix, harmed.digest, harmed.path)))


def _inode(path: Path) -> int | None:
    try:
        return os.stat(path).st_ino
    except OSError:
        return None
