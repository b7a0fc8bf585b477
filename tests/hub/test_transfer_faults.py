"""A large object through a network and a store that misbehave: no wrong byte, and a clear reason.

Between two real S3 servers and the client, in this process and in the one apart.
"""

import dataclasses
import hashlib
import http.server
import os
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import pytest
from minio import Minio

from reconciler.errors import Damaged, Transient, XgenError
from reconciler.hub.catalog import CATALOG
from reconciler.hub.objects import HubObject
from reconciler.hub.s3 import S3Store
from reconciler.hub.s3_apart import S3StoreApart
from reconciler.hub.s3_settings import S3Settings
from tests.hub.fault_proxy import Fault, FaultProxy, Get, fault_proxy
from tests.hub.hubs import Servers, servers
from tests.hub.reading import read_all
from tests.s3_server import ACCESS_KEY, SECRET_KEY
from tests.waiting import wait_until

__all__ = ["servers"]

MIB = 1 << 20
BIG = os.urandom(20 * MIB + 17)  # parts of 8, 8 and 4 MiB
PREFIX = "gguf/org_name"
KEY = f"{PREFIX}/x.gguf"


@dataclass(frozen=True, kw_only=True)
class Rig:
    """A store behind the proxy, and a way past it to the server."""

    store: S3Store | S3StoreApart
    proxy: FaultProxy
    direct: Minio
    part_bytes: int = 32 * MIB  # in one PUT: the ETag is an MD5

    def put(self, content: bytes) -> None:
        self.direct.put_object(
            bucket_name="models",
            object_name=KEY,
            data=BytesIO(content),
            length=len(content),
            part_size=self.part_bytes,
        )

    def listed(self) -> HubObject:
        (stored,) = self.store.objects(PREFIX)
        return stored

    def read(self, **callbacks: Callable[..., Any]) -> bytes:
        return read_all(self.store, self.listed(), **callbacks)


Kind = type[S3Store] | type[S3StoreApart]
KINDS: tuple[tuple[Kind, str], ...] = (
    (S3Store, "rclone"),
    (S3StoreApart, "rclone"),
    (S3Store, "moto"),
)


def name(kind: tuple[Kind, str]) -> str:
    return f"{kind[0].__name__}-{kind[1]}"


@contextmanager
def rigged(kind: Kind, backing: S3Settings, *, seconds: float) -> Iterator[Rig]:
    """`seconds`: after which a connection without bytes is given up."""
    with fault_proxy(int(backing.endpoint.rpartition(":")[2])) as proxy:
        settings = dataclasses.replace(
            backing, endpoint=proxy.endpoint, read_timeout_seconds=seconds
        )
        direct = Minio(
            backing.endpoint.removeprefix("http://"),
            access_key=ACCESS_KEY,
            secret_key=SECRET_KEY,
            secure=False,
            region="us-east-1",
        )
        with closing(kind(settings)) as store:
            rig = Rig(store=store, proxy=proxy, direct=direct)
            rig.put(BIG)
            yield rig


@pytest.fixture(params=KINDS, ids=name)
def rig(request: pytest.FixtureRequest, servers: Servers) -> Iterator[Rig]:
    with rigged(request.param[0], servers.settings(request.param[1]), seconds=1.0) as made:
        yield made


@pytest.fixture(params=KINDS, ids=name)
def patient_rig(request: pytest.FixtureRequest, servers: Servers) -> Iterator[Rig]:
    """Its connections wait for ten minutes, which no test has."""
    with rigged(request.param[0], servers.settings(request.param[1]), seconds=600.0) as made:
        yield made


def first(fault: Fault, *, times: int = 1) -> Callable[[Get], Fault | None]:
    return lambda get: fault if get.number < times else None


@pytest.mark.parametrize(
    "fault",
    [
        Fault(at=3 * MIB + 5, cut=True),
        Fault(at=3 * MIB + 5, reset=True),
        Fault(at=3 * MIB + 5, short=True),
        Fault(at=3 * MIB + 5, stall=True),
        Fault(at=0, cut=True),
        Fault(answer=(503, "SlowDown")),
        Fault(answer=(500, "InternalError")),
    ],
)
def test_an_answer_that_ends_early_is_gone_on_with(rig: Rig, fault: Fault) -> None:
    """gpustack#2582, #312 (scenarios 26, 27): at once, and nothing is counted twice."""
    rig.proxy.plan = first(fault, times=2)
    told: list[int] = []

    assert rig.read(on_bytes=told.append) == BIG

    assert told == sorted(told)
    assert told[-1] == len(BIG)
    if not (fault.stall or fault.reset):  # what was in the sockets then is lost
        assert rig.proxy.passed <= len(BIG) + 2 * 256 * 1024


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault(at=100, stall=True), "no byte came for too long"),
        (Fault(at=0, cut=True), "the connection was cut|closes the connection"),
        (Fault(answer=(503, "SlowDown")), "asks to slow down"),
        (Fault(answer=(500, "InternalError")), "it answers 500"),
        (Fault(answer=(403, "AccessDenied")), "access denied; check MINIO_ACCESS_KEY"),
        (Fault(answer=(404, "NoSuchKey")), "it is gone from the store"),
        (Fault(answer=(412, "PreconditionFailed")), "it changed while it was fetched"),
    ],
)
@pytest.mark.parametrize("rig", KINDS[:1], indirect=True, ids=name)
def test_a_fault_that_lasts_has_a_clear_reason(rig: Rig, fault: Fault, reason: str) -> None:
    rig.proxy.plan = lambda get: fault if get.number >= 1 else None

    with pytest.raises(Transient, match=rf"^cannot fetch {re.escape(KEY)} from .*({reason})"):
        rig.read()


def test_flipped_bytes_are_fetched_again(rig: Rig) -> None:
    rig.proxy.plan = first(Fault(at=MIB, flip=True))

    assert rig.read() == BIG
    assert rig.proxy.passed >= 2 * len(BIG)


def test_bytes_that_are_flipped_each_time_never_pass(rig: Rig) -> None:
    rig.proxy.plan = lambda get: Fault(at=MIB, flip=True) if get.offset == 0 else None

    with pytest.raises(Damaged, match=f"{KEY} .* its MD5, after 3 fetches; push it again"):
        rig.read()

    assert rig.proxy.passed >= 3 * len(BIG)


@pytest.mark.parametrize("rig", KINDS[:1], indirect=True, ids=name)
def test_a_catalog_whose_bytes_are_flipped_is_read_again_later(rig: Rig) -> None:
    """It is small: nothing is spared by leaving it alone, and every look reads it."""
    rig.direct.put_object(
        bucket_name="models", object_name=f"{PREFIX}/{CATALOG}", data=BytesIO(b"{}"), length=2
    )
    rig.proxy.plan = lambda _get: Fault(at=1, flip=True)
    try:
        with pytest.raises(Transient, match=rf"{CATALOG} .* does not match its MD5"):
            rig.store.objects(PREFIX)
    finally:
        rig.direct.remove_object(bucket_name="models", object_name=f"{PREFIX}/{CATALOG}")


def test_a_sha256_counts_more_than_an_etag(rig: Rig) -> None:
    stored = rig.listed()
    right = dataclasses.replace(stored, md5="0" * 32, sha256=hashlib.sha256(BIG).hexdigest())
    wrong = dataclasses.replace(stored, sha256="0" * 64)
    rig.proxy.plan = first(Fault(at=MIB, flip=True))

    assert read_all(rig.store, right) == BIG
    with pytest.raises(Damaged, match="does not match its sha256, after 3 fetches"):
        read_all(rig.store, wrong)


def test_an_object_that_changes_midway_is_never_mixed(rig: Rig) -> None:
    """The rest is asked for only once another object is there."""

    def change(get: Get) -> Fault | None:
        if get.number == 0:
            return Fault(at=MIB, then=lambda: rig.put(BIG[::-1]), cut=True)
        return None

    rig.proxy.plan = change

    with pytest.raises(XgenError, match=r"it changed while it was fetched|does not match its MD5"):
        rig.read()
    assert rig.read() == BIG[::-1]


def test_a_stall_does_not_hold_up_giving_up(patient_rig: Rig) -> None:
    patient_rig.proxy.plan = lambda _get: Fault(at=MIB, stall=True)

    with pytest.raises(Transient, match="it is no longer wanted"):
        patient_rig.read(cancelled=lambda: patient_rig.proxy.stalled == 3)


def test_all_reads_of_a_node_share_a_limit_of_connections(patient_rig: Rig) -> None:
    patient_rig.proxy.plan = lambda _get: Fault(at=0, stall=True)
    stored = patient_rig.listed()
    read: list[bytes] = []
    readers = [
        threading.Thread(target=lambda: read.append(read_all(patient_rig.store, stored)))
        for _ in range(8)
    ]
    for reader in readers:
        reader.start()
    wait_until(lambda: patient_rig.proxy.stalled == 16, what="16 of 24 parts are asked for")
    most_open = patient_rig.proxy.most_open
    patient_rig.proxy.release()
    for reader in readers:
        reader.join()

    assert read == [BIG] * 8
    assert most_open == 16


class _WholeObjects(http.server.BaseHTTPRequestHandler):
    """A store that sends all of `BIG`, whatever is asked for; the first time not to the end."""

    asked = 0
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        type(self).asked += 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(BIG)))
        self.end_headers()
        try:
            self.wfile.write(BIG[: 3 * MIB] if self.asked <= 4 else BIG)
            self.wfile.flush()
        except OSError:
            pass
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        return


def test_a_store_without_ranges_is_read_in_one_stream() -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _WholeObjects)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    settings = S3Settings(endpoint=f"http://127.0.0.1:{server.server_address[1]}", bucket="models")
    store = S3Store(settings)
    stored = HubObject(
        path="x.gguf",
        key=KEY,
        size_bytes=len(BIG),
        version="",
        md5=hashlib.md5(BIG, usedforsecurity=False).hexdigest(),
    )
    try:
        assert read_all(store, stored) == BIG
    finally:
        store.close()
        server.shutdown()
        thread.join()
        server.server_close()
