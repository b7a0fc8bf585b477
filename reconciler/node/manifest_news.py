"""Who edits a manifest is told where the manifest is, if that can be: of a bad one, of one that
waits for a confirmation, and of the good one after it. What is told is what the journal has."""

import asyncio
from collections.abc import Iterable

import structlog

from reconciler.errors import Rejected, XgenError
from reconciler.events import Event, EventKind, Journal
from reconciler.source.manifest_source import ManifestNews, ManifestSource, ToldSource

_log = structlog.get_logger("xgen.source")

_TRIES = 5
_FIRST_PAUSE_SECONDS = 1.0
_BAD = {
    EventKind.MANIFEST_REFUSED: "ManifestInvalid",
    EventKind.REVISION_WAITS: "RevisionWaits",
}
"""What somebody has to do something about, by the reason that it is told with."""


async def tell_of_manifest(
    source: ManifestSource, journal: Journal, *, first_pause_seconds: float = _FIRST_PAUSE_SECONDS
) -> None:
    """Until it is cancelled. Ends at once where nobody can be told."""
    if not isinstance(source, ToldSource):
        return
    teller = _Teller(source, journal, first_pause_seconds)
    while True:
        try:
            await teller.run()
        except Exception:  # noqa: BLE001  nothing else of the agent may end by it
            _log.exception("what became of the manifest could not be told; the next may be")


class _Teller:
    def __init__(self, source: ToldSource, journal: Journal, first_pause_seconds: float) -> None:
        self._source = source
        self._journal = journal
        self._first_pause_seconds = first_pause_seconds
        self._cursor = 0
        self._bad = False
        self._refused = False

    async def run(self) -> None:
        while True:
            await self._journal.newer_than(self._cursor)
            page = self._journal.after(self._cursor)
            self._cursor = page.next
            if (news := self._newest(page.events)) is not None:
                await self._tell(news)

    def _newest(self, events: Iterable[Event]) -> ManifestNews | None:
        """None: nothing that is news: a good one after a good one is none."""
        news = None
        for event in events:
            if (reason := _BAD.get(event.kind)) is not None:
                self._bad, news = True, _news(reason, event, event.reason)
            elif event.kind is EventKind.MANIFEST_TAKEN:
                was_bad, self._bad = self._bad, False
                revision = str(event.data.get("revision", ""))[:12]
                said = f"valid again, and taken up whole (revision {revision})"
                news = _news("ManifestTaken", event, said) if was_bad else None
        return news

    async def _tell(self, news: ManifestNews) -> None:
        """A few times, unless there is newer news."""
        for attempt in range(_TRIES):
            try:
                await self._source.tell(news)
                return
            except Rejected as exc:
                if not self._refused:
                    self._refused = True
                    _log.warning("no Events tell of a bad manifest", reason=str(exc))
                return
            except XgenError as exc:
                _log.debug("an Event could not be written", reason=str(exc), attempt=attempt)
                wait = getattr(exc, "retry_after_seconds", None) or 0.0
            await asyncio.sleep(max(wait, self._first_pause_seconds * 2.0**attempt))
            if any(_is_news(event) for event in self._journal.after(self._cursor).events):
                return


def _is_news(event: Event) -> bool:
    return event.kind in _BAD or event.kind is EventKind.MANIFEST_TAKEN


def _news(reason: str, event: Event, message: str) -> ManifestNews:
    return ManifestNews(
        node=event.node,
        time=event.time,
        bad=event.kind in _BAD,
        reason=reason,
        message=message,
    )
