"""The source that follows a ConfigMap: nothing that befalls the API makes it lose the newest one,
or show one that is none."""

import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.source.directory import DirectorySource
from reconciler.source.kubernetes_access import KubernetesAccess
from tests.source.git_https import certificate
from tests.source.kubernetes_files import kubeconfig, service_account
from tests.source.kubernetes_reading import SHOWN, listening, reading, source_of, texts
from tests.source.kubernetes_server import Server, serving
from tests.source.kubernetes_store import Refused
from tests.waiting import wait_until


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as made:
        yield made


@pytest.fixture
def access(tmp_path: Path, server: Server) -> KubernetesAccess:
    return KubernetesAccess(kubeconfig=kubeconfig(tmp_path, server))


async def test_hears_of_every_change(server: Server, access: KubernetesAccess) -> None:
    server.store.put({"a.yaml": "1"})
    async with reading(source_of(access)) as reader:
        assert texts(await reader.next()) == ["1"]
        for number in "234":
            server.store.put({"a.yaml": number})
            assert texts(await reader.next()) == [number]
    assert server.count("watch") == 1


async def test_is_the_same_as_the_mount(
    server: Server, access: KubernetesAccess, tmp_path: Path
) -> None:
    """Names, contents and revision: a manifest that moves between the two is no change."""
    files = {"b.yml": "ü: 1", "a.yaml": "1", "c.json": "{}", "notes.txt": "x", ".hidden.yaml": "x"}
    server.store.put(files, binaryData={"d.yaml": base64.b64encode(b"\xff\x00").decode()})
    mount = tmp_path / "mount"
    mount.mkdir()
    for name, text in files.items():
        (mount / name).write_text(text)
    (mount / "d.yaml").write_bytes(b"\xff\x00")
    async with reading(source_of(access)) as reader:
        here = await reader.next()
    there = await DirectorySource(mount, settle_seconds=0.01).read()
    assert (here.files, here.revision) == (there.files, there.revision)
    assert [file.name for file in here.files] == ["a.yaml", "b.yml", "c.json", "d.yaml"]


async def test_a_write_of_the_same_and_of_others_is_nothing_new(
    server: Server, access: KubernetesAccess
) -> None:
    server.store.put({"a.yaml": "1"})
    source = source_of(access)
    async with reading(source) as reader:
        await reader.next()
        await listening(server)
        server.store.put({"a.yaml": "x"}, name="other")
        server.store.put({"a.yaml": "1"}, metadata={"name": "models", "labels": {"new": "label"}})
        asked = source.look_again()
        coming = asyncio.ensure_future(reader.next())
        async with asyncio.timeout(30):
            await asked.wait()
        assert not coming.done()
        server.store.put({"a.yaml": "2"})
        assert texts(await coming) == ["2"]


async def test_one_that_is_not_there_is_an_error_never_an_empty_one(
    server: Server, access: KubernetesAccess
) -> None:
    """argo-cd#2573 (scenario 40)."""
    async with reading(source_of(access)) as reader:
        absent = await reader.next()
        assert absent.error == (
            f"cannot read {SHOWN}: there is no ConfigMap models in namespace models"
        )
        server.store.put({"a.yaml": "1"})
        there = await reader.until_texts("1")
        server.store.delete()
        gone = await reader.next()
        assert (gone.error, gone.files, gone.revision) == (absent.error, (), there.revision)
        server.store.put({"a.yaml": "2"})
        await reader.until_texts("2")
        server.store.put({})
        empty = await reader.next()
        assert (empty.error, empty.files) == (None, ())


@pytest.mark.parametrize(
    ("failing", "said"),
    [
        (Refused(500, "InternalError", "etcd\nis away"), "answers 500: etcd is away"),
        (Refused(503, "ServiceUnavailable", ""), "answers 503"),
        (Refused(429, "TooManyRequests", "too many", wait=0), "answers 429: too many"),
        (Refused(403, "Forbidden", "configmaps is forbidden"), "configmaps is forbidden (403)"),
    ],
)
async def test_an_api_that_fails_is_an_error_and_the_newest_counts_afterwards(
    server: Server, access: KubernetesAccess, failing: Refused, said: str
) -> None:
    server.store.put({"a.yaml": "1"})
    async with reading(source_of(access, interval=0.05)) as reader:
        good = await reader.next()
        server.failing = failing
        server.drop()
        lost = await reader.until_error(said)
        assert lost.error is not None
        assert lost.error.endswith("; it was reached last at 2026-01-02T03:04:05Z")
        assert (lost.files, lost.revision) == ((), good.revision)
        server.store.put({"a.yaml": "2"})
        server.failing = None
        await reader.until_texts("2")


async def test_a_server_that_is_gone_for_a_while(server: Server, access: KubernetesAccess) -> None:
    server.store.put({"a.yaml": "1"})
    source = source_of(access)
    async with reading(source) as reader:
        await reader.next()
        server.stop()
        source.look_again()
        await reader.until_error(f"cannot connect to the API server localhost:{server.port}: ")
        server.store.put({"a.yaml": "2"})
        server.start()
        await reader.until_texts("2")


async def test_says_soon_that_the_api_is_silent(server: Server, access: KubernetesAccess) -> None:
    """Until something is said, the last good version is not in force after a start."""
    server.store.put({"a.yaml": "1"})
    server.silent = True
    async with reading(source_of(access, patience=0.05)) as reader:
        assert "it has not answered yet" in str((await reader.next()).error)
        server.silent = False
        await reader.until_texts("1")


async def test_a_token_that_was_replaced_counts_at_once(tmp_path: Path) -> None:
    """As kubelet does every hour, long before the old one ends."""
    with serving(Server(certificate=certificate(tmp_path, "ours"), tokens={"old"})) as server:
        access = service_account(tmp_path / "account", server, "old\n")
        server.store.put({"a.yaml": "1"})
        async with reading(source_of(access)) as reader:
            await reader.next()
            await listening(server)
            server.tokens = {"new"}
            server.drop()
            await asyncio.to_thread(
                wait_until, lambda: server.asked[-1] == ("watch", "old"), what="another try"
            )
            (access.service_account / "token").write_text("new")
            await listening(server)
            server.store.put({"a.yaml": "2"})
            await reader.until_texts("2")


async def test_an_authority_that_was_replaced_counts_at_once(tmp_path: Path) -> None:
    server = Server(certificate=certificate(tmp_path, "ours"))
    with serving(server):
        access = service_account(tmp_path / "account", server, "t0k3n")
        server.store.put({"a.yaml": "1"})
        source = source_of(access)
        async with reading(source) as reader:
            await reader.next()
            server.stop()
            server.certificate = certificate(tmp_path, "another")
            server.start()
            source.look_again()
            lost = await reader.until_error("is not trusted: self-signed certificate")
            assert "t0k3n" not in str(lost.error)
            assert server.asked[-1][0] == "watch"
            server.store.put({"a.yaml": "2"})
            (access.service_account / "ca.crt").write_bytes(server.certificate.read_bytes())
            await reader.until_texts("2")


async def test_nothing_is_left_when_it_ends(server: Server, access: KubernetesAccess) -> None:
    server.store.put({"a.yaml": "1"})
    async with reading(source_of(access)) as reader:
        await reader.next()
        await listening(server)
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert left == []


async def test_ends_at_once_while_the_api_is_silent(
    server: Server, access: KubernetesAccess
) -> None:
    server.silent = True
    async with reading(source_of(access, patience=0.05)) as reader:
        await reader.next()
    left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert left == []
