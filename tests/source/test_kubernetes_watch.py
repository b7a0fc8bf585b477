"""Hearing of changes: whatever becomes of a watch, the newest one counts."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.source.kubernetes_access import KubernetesAccess
from tests.source.kubernetes_files import kubeconfig
from tests.source.kubernetes_reading import HOUR, SHOWN, listening, reading, source_of, texts
from tests.source.kubernetes_server import Server, serving
from tests.waiting import wait_until


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as made:
        yield made


@pytest.fixture
def access(tmp_path: Path, server: Server) -> KubernetesAccess:
    return KubernetesAccess(kubeconfig=kubeconfig(tmp_path, server))


@pytest.mark.parametrize("how", ["event", "status"])
async def test_a_version_that_is_too_old_is_read_anew(
    server: Server, access: KubernetesAccess, how: str
) -> None:
    server.gone_as = how
    server.store.put({"a.yaml": "1"})
    async with reading(source_of(access)) as reader:
        await reader.next()
        await listening(server)
        for number in "23":
            with server.store.changed:  # nobody hears of the one before its history is gone
                server.store.put({"a.yaml": number})
                server.store.expire()
                server.drop()
            await reader.until_texts(number)


async def test_a_watch_that_is_cut_in_the_middle_of_an_event_loses_nothing(
    server: Server, access: KubernetesAccess
) -> None:
    server.store.put({"a.yaml": "1"})
    source = source_of(access)
    async with reading(source) as reader:
        await reader.next()
        for number in "23":
            await listening(server)
            server.cut_events = 1
            server.store.put({"a.yaml": number})
            await reader.until_texts(number)
            assert server.cut_events == 0


async def test_a_watch_that_hears_of_nothing_and_does_not_end_is_given_up(
    server: Server, access: KubernetesAccess
) -> None:
    """As where a firewall has forgotten the connection."""
    server.deaf = True
    server.store.put({"a.yaml": "1"})
    async with reading(source_of(access, watch=0.5, grace=0.2)) as reader:
        await reader.next()
        await listening(server)
        server.store.put({"a.yaml": "2"})
        await reader.until_texts("2")
        assert server.count("watch") > 1


async def test_a_bookmark_moves_on_what_is_known(server: Server, access: KubernetesAccess) -> None:
    """Others write all the time, and the history of old versions goes."""
    server.bookmark_seconds = 0.02
    server.store.put({"a.yaml": "1"})
    async with reading(source_of(access)) as reader:
        await reader.next()
        await listening(server)
        server.store.put({"a.yaml": "x"}, name="other")
        told = server.bookmarks
        await asyncio.to_thread(wait_until, lambda: server.bookmarks > told + 1, what="a bookmark")
        server.store.expire(before_now=True)
        server.drop()
        await asyncio.to_thread(wait_until, lambda: server.count("watch") == 2, what="a new watch")
        server.store.put({"a.yaml": "2"})
        assert texts(await reader.next()) == ["2"]
        assert (server.count("list"), server.count("watch")) == (2, 2)


async def test_a_watch_that_always_ends_at_once_is_told_of_steadily(
    server: Server, access: KubernetesAccess
) -> None:
    """As behind a proxy that takes no streams."""
    server.ending = True
    server.store.put({"a.yaml": "1"})
    source = source_of(access)
    told = (f"cannot watch {SHOWN}: each watch ends at once; reading it every {HOUR:g} s",)
    async with reading(source) as reader:
        first = await reader.next()
        assert await reader.until(lambda _: source.notices != ()) == first
        assert source.notices == told
        server.store.put({"a.yaml": "2"})
        second = await reader.until_texts("2")
        assert source.notices == told
        server.ending = False
        assert await reader.until(lambda _: source.notices == ()) == second


async def test_goes_on_from_where_it_was_when_a_watch_ends(
    server: Server, access: KubernetesAccess
) -> None:
    server.store.put({"a.yaml": "1"})
    async with reading(source_of(access, watch=1.0)) as reader:
        await reader.next()
        await asyncio.to_thread(wait_until, lambda: server.count("watch") >= 3, what="new watches")
        server.store.put({"a.yaml": "2"})
        assert texts(await reader.next()) == ["2"]
        assert server.count("list") == 2


async def test_a_watch_that_may_not_be_is_told_of_and_the_manifest_is_polled(
    server: Server, access: KubernetesAccess
) -> None:
    server.store.put({"a.yaml": "1"})
    server.forbidden = {("watch", "configmaps")}
    source = source_of(access, interval=0.05)
    async with reading(source) as reader:
        first = await reader.next()
        assert await reader.until(lambda _: source.notices != ()) == first
        (notice,) = source.notices
        assert notice.startswith(f"cannot watch {SHOWN}: configmaps is forbidden: User ")
        assert notice.endswith("reading it every 0.05 s")
        server.store.put({"a.yaml": "2"})
        second = await reader.until_texts("2")
        server.forbidden = set()
        assert await reader.until(lambda _: source.notices == ()) == second
