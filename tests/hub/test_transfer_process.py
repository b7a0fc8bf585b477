"""The process that fetches large objects: how it comes, and how it goes."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from reconciler.errors import Transient
from reconciler.hub.objects import HubObject
from reconciler.hub.s3_apart import S3StoreApart
from tests.e2e.agent import is_alive
from tests.hub.fault_proxy import Fault, FaultProxy, fault_proxy
from tests.hub.reading import read_all
from tests.s3_server import KEYS, SECRET_KEY, S3Server
from tests.waiting import wait_for, wait_until

BIG = os.urandom(20 << 20)
MODULE = "reconciler.hub.transfer_child"


@pytest.fixture
def proxy(server: S3Server) -> Iterator[FaultProxy]:
    with fault_proxy(server.port) as running:
        yield running


@pytest.fixture
def store(server: S3Server, proxy: FaultProxy) -> Iterator[S3StoreApart]:
    with closing(S3StoreApart(server.settings(endpoint=proxy.endpoint))) as opened:
        yield opened


def listed(server: S3Server, store: S3StoreApart, name: str, content: bytes = BIG) -> HubObject:
    server.put("models", f"gguf/{name}/x.gguf", content)
    (stored,) = store.objects(f"gguf/{name}")
    return stored


def processes_of(parent: int) -> list[int]:
    """Its children that fetch."""
    children = Path(f"/proc/{parent}/task").glob("*/children")
    pids = [int(pid) for path in children for pid in path.read_text().split()]
    return [pid for pid in pids if MODULE in Path(f"/proc/{pid}/cmdline").read_text()]


def test_it_ends_after_the_last_read(server: S3Server, store: S3StoreApart) -> None:
    seen: list[int] = []

    read_all(
        store,
        listed(server, store, "apart_ends"),
        on_bytes=lambda _done: seen.extend(processes_of(os.getpid())),
    )

    assert len(set(seen)) == 1
    assert processes_of(os.getpid()) == []


def test_its_environment_holds_no_secret(
    server: S3Server, store: S3StoreApart, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The keys come by a pipe; others of the node's user can read /proc."""
    for name in ("HF_TOKEN", "MINIO_ACCESS_KEY", "MINIO_SECRET_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.setenv(name, "not-to-be-seen")
    seen: set[bytes] = set()

    def look(_done: int) -> None:
        for pid in processes_of(os.getpid()):
            seen.add(Path(f"/proc/{pid}/environ").read_bytes())

    content = read_all(store, listed(server, store, "apart_secrets"), on_bytes=look)

    assert content == BIG
    assert seen
    assert not any(b"not-to-be-seen" in each for each in seen)


def test_small_objects_need_none(server: S3Server, store: S3StoreApart) -> None:
    seen: list[int] = []

    content = read_all(
        store,
        listed(server, store, "apart_small", b"{}"),
        on_bytes=lambda _done: seen.extend(processes_of(os.getpid())),
    )

    assert content == b"{}"
    assert seen == []


def test_reads_side_by_side_share_one(
    server: S3Server, store: S3StoreApart, proxy: FaultProxy
) -> None:
    proxy.plan = lambda _get: Fault(at=0, stall=True)
    stored = listed(server, store, "apart_shared")
    contents: list[bytes] = []
    readers = [
        threading.Thread(target=lambda: contents.append(read_all(store, stored))) for _ in range(3)
    ]
    for reader in readers:
        reader.start()
    wait_until(lambda: proxy.stalled == 9, what="all parts are asked for")
    seen = processes_of(os.getpid())
    proxy.release()
    for reader in readers:
        reader.join()

    assert len(seen) == 1
    assert contents == [BIG] * 3


def test_it_is_started_again_after_it_was_killed(
    server: S3Server, store: S3StoreApart, proxy: FaultProxy
) -> None:
    """As the kernel does where memory runs out."""
    proxy.plan = lambda get: Fault(at=0, stall=True) if get.number < 3 else None
    stored = listed(server, store, "apart_killed")

    def kill() -> None:
        wait_until(lambda: proxy.stalled == 3, what="all parts are asked for")
        (pid,) = processes_of(os.getpid())
        os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(Transient, match=r"cannot fetch gguf/apart_killed/x\.gguf .* was killed"):
        read_all(store, stored)
    killer.join()

    assert read_all(store, stored) == BIG


def test_it_ends_with_an_agent_that_is_killed(server: S3Server, proxy: FaultProxy) -> None:
    """Else it would write on, with the file locked."""
    server.put("models", "gguf/org_name/x.gguf", BIG)
    proxy.plan = lambda _get: Fault(at=0, stall=True)
    program = (
        "from tests.cache.pulling import *; from pathlib import Path; import sys;"
        f"pull(S3Settings(endpoint={proxy.endpoint!r}, bucket='models', keys={KEYS!r}),"
        "Path(sys.argv[1]))"
    )
    folder = server.folder.parent / "models-of-the-killed"
    with subprocess.Popen([sys.executable, "-c", program, str(folder)]) as agent:
        wait_until(lambda: proxy.stalled == 3, what="all parts are asked for")
        pid = wait_for(lambda: next(iter(processes_of(agent.pid)), None), what="it has started")
        agent.kill()

    wait_until(lambda: not is_alive(pid), what="it has ended")


def test_no_secret_can_be_seen_from_outside(
    server: S3Server, store: S3StoreApart, proxy: FaultProxy
) -> None:
    shown: list[bytes] = []

    def look(_done: int) -> None:
        for pid in processes_of(os.getpid()):
            shown.extend(
                Path(f"/proc/{pid}/{name}").read_bytes() for name in ("cmdline", "environ")
            )

    read_all(store, listed(server, store, "apart_secret"), on_bytes=look)

    assert shown
    assert not any(SECRET_KEY.encode() in text for text in shown)
