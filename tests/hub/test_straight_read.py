"""Large bodies past Python's own reader, from a real S3 server."""

import os
import tempfile
from dataclasses import replace

import pytest

from reconciler.errors import Transient
from reconciler.hub.s3 import S3Store
from tests.hub.fault_proxy import Fault, fault_proxy
from tests.s3_server import S3Server, s3_store
from tests.tcp_relay import relay_to

MIB = 1 << 20
PREFIX = "gguf/org_straight"
CONTENT = os.urandom(1_000_003) * 9  # a part of 8 MiB, and a smaller one


def put(server: S3Server) -> None:
    server.put("models", f"{PREFIX}/x.gguf", CONTENT)


def read(store: S3Store) -> bytes:
    (stored,) = store.objects(PREFIX)
    with tempfile.TemporaryFile() as file:
        store.read(stored, file.fileno(), on_bytes=lambda _: None, cancelled=lambda: False)
        file.seek(0)
        return file.read()


def test_a_connection_serves_the_next_part_too(server: S3Server) -> None:
    put(server)
    with (
        relay_to(server.port) as relay,
        s3_store(server.settings(endpoint=relay.endpoint)) as store,
    ):
        assert [read(store) == CONTENT for _ in range(3)] == [True] * 3
        assert relay.accepted <= 1 + 2  # of the listings, and of the two parts


@pytest.mark.parametrize("at", [0, 5000, 100_000, 8 * MIB - 1], ids=str)
def test_silence_is_found_wherever_it_begins(server: S3Server, at: int) -> None:
    """Before the body, in what was buffered with its head, in the midst, before its last byte."""
    put(server)
    with fault_proxy(server.port) as proxy:
        settings = server.settings(endpoint=proxy.endpoint)
        with s3_store(replace(settings, read_timeout_seconds=0.15)) as store:
            proxy.plan = lambda get: Fault(at=at, stall=True) if get.offset == 0 else None
            if at == 0:
                with pytest.raises(Transient, match="no byte came for too long"):
                    read(store)
            proxy.plan = lambda get: (
                Fault(at=at, stall=True) if get.offset == 0 and get.number < 3 else None
            )
            proxy.gets.clear()
            assert read(store) == CONTENT
