"""What is told where the manifest is: a bad one, and the good one after it, from the journal."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from reconciler.errors import Rejected, Transient
from reconciler.events import EventKind, Journal
from reconciler.node.manifest_news import tell_of_manifest
from reconciler.plan.ids import NodeName
from reconciler.source.manifest_source import ManifestNews
from reconciler.source.snapshot import Snapshot


class Recording:
    """A source that is told. `answers`: what it answers with, one by one; None: it takes it."""

    notices: tuple[str, ...] = ()

    def __init__(self, *answers: Exception | None) -> None:
        self.told: asyncio.Queue[ManifestNews] = asyncio.Queue()
        self._answers = [*answers]

    async def tell(self, news: ManifestNews) -> None:
        self.told.put_nowait(news)
        if self._answers and (answer := self._answers.pop(0)) is not None:
            raise answer

    async def next(self) -> tuple[bool, str, str]:
        async with asyncio.timeout(20):
            news = await self.told.get()
        return news.bad, news.reason, news.message

    def look_again(self) -> asyncio.Event:
        raise NotImplementedError

    async def read(self) -> Snapshot:
        raise NotImplementedError

    def snapshots(self) -> AsyncGenerator[Snapshot, None]:
        raise NotImplementedError


BAD = (True, "ManifestInvalid", "a.yaml:1:1: wrong")
GOOD = (False, "ManifestTaken", "valid again, and taken up whole (revision 0123456789ab)")


@asynccontextmanager
async def telling(source: Recording) -> AsyncIterator[Journal]:
    journal = Journal(node=NodeName("gpu-1"), now=lambda: "2026-12-01T07:00:00.000+00:00")
    task = asyncio.create_task(tell_of_manifest(source, journal, first_pause_seconds=0.001))
    try:
        yield journal
    finally:
        task.cancel()
        await asyncio.wait([task])


def refused(journal: Journal, said: str = "a.yaml:1:1: wrong") -> None:
    journal.record(EventKind.MANIFEST_REFUSED, said)


def taken(journal: Journal) -> None:
    journal.record(EventKind.MANIFEST_TAKEN, "it was taken up whole", revision="0123456789abcdef")


async def test_a_good_one_is_news_after_a_bad_one_only() -> None:
    source = Recording()
    async with telling(source) as journal:
        taken(journal)
        refused(journal)
        assert await source.next() == BAD
        taken(journal)
        assert await source.next() == GOOD
        taken(journal)
        refused(journal, "another")
        assert await source.next() == (True, "ManifestInvalid", "another")
        assert source.told.empty()


async def test_one_that_waits_for_a_confirmation_is_news() -> None:
    source = Recording()
    async with telling(source) as journal:
        journal.record(EventKind.REVISION_WAITS, "revision r2 waits for confirmation")
        assert await source.next() == (True, "RevisionWaits", "revision r2 waits for confirmation")
        taken(journal)
        assert (await source.next())[:2] == (False, "ManifestTaken")


async def test_it_is_tried_again_while_it_is_news() -> None:
    source = Recording(Transient("away"), Transient("away"), None, Transient("away"))
    async with telling(source) as journal:
        refused(journal)
        assert [await source.next() for _ in range(3)] == [BAD] * 3
        refused(journal, "another")
        assert (await source.next())[2] == "another"
        taken(journal)
        assert await source.next() == GOOD
        assert source.told.empty()


async def test_who_may_not_is_left_alone_until_there_is_other_news() -> None:
    source = Recording(Rejected("forbidden"), RuntimeError("a fault of ours"))
    async with telling(source) as journal:
        refused(journal)
        assert await source.next() == BAD
        refused(journal, "another")
        assert (await source.next())[2] == "another"
        taken(journal)
        assert await source.next() == GOOD
        assert source.told.empty()
