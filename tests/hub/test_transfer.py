"""GETs that bring several parts of an object each, and the journal that counts the parts."""

import hashlib
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from reconciler.hub.objects import HubObject
from reconciler.hub.s3 import S3Store
from tests.hub.fault_proxy import Fault, FaultProxy, Get, fault_proxy
from tests.s3_server import S3Server, s3_store

PART_BYTES = 64 * 1024
PARTS = 321
CONTENT = os.urandom((PARTS - 1) * PART_BYTES + 17)
KEY = "gguf/org_name/x.gguf"


@dataclass
class SmallParts:
    """The journal of a try that was killed, of small parts. Each that is finished must be right."""

    fd: int
    there: frozenset[int] = frozenset()
    done: list[int] = field(default_factory=list)

    def begin(self, part_bytes: int) -> tuple[int, frozenset[int]]:
        for index in self.there:
            os.pwrite(self.fd, part_of(CONTENT, index), index * PART_BYTES)
        return PART_BYTES, self.there

    def finished(self, index: int) -> None:
        written = os.pread(self.fd, PART_BYTES, index * PART_BYTES)
        assert written[: len(part_of(CONTENT, index))] == part_of(CONTENT, index)
        self.done.append(index)

    def forget(self) -> None:
        raise AssertionError("what came did not match")


def part_of(content: bytes, index: int) -> bytes:
    return content[index * PART_BYTES : (index + 1) * PART_BYTES]


@pytest.fixture
def proxy(server: S3Server) -> Iterator[FaultProxy]:
    with fault_proxy(server.port) as running:
        yield running


@pytest.fixture
def store(server: S3Server, proxy: FaultProxy) -> Iterator[S3Store]:
    server.put("models", KEY, CONTENT)
    with s3_store(server.settings("models", endpoint=proxy.endpoint)) as opened:
        yield opened


def read(store: S3Store, there: frozenset[int] = frozenset()) -> SmallParts:
    """Reads the object, whose digest is compared."""
    (listed,) = store.objects("gguf/org_name")
    stored: HubObject = replace(listed, sha256=hashlib.sha256(CONTENT).hexdigest())
    with tempfile.TemporaryFile() as file:
        journal = SmallParts(file.fileno(), there)
        store.read(
            stored,
            file.fileno(),
            on_bytes=lambda _done: None,
            cancelled=lambda: False,
            journal=journal,
        )
        assert os.pread(file.fileno(), len(CONTENT) + 1, 0) == CONTENT
    return journal


def test_a_get_brings_several_parts_and_the_journal_has_each(
    store: S3Store, proxy: FaultProxy
) -> None:
    journal = read(store)

    assert sorted(journal.done) == list(range(PARTS))
    assert len(proxy.gets) < PARTS // 2


def test_cut_in_the_middle_of_a_run_goes_on_there(store: S3Store, proxy: FaultProxy) -> None:
    proxy.plan = lambda get: Fault(at=3 * PART_BYTES + 5, cut=True) if get.number < 8 else None

    journal = read(store)

    assert sorted(journal.done) == list(range(PARTS))
    goes_on = [get.offset % PART_BYTES for get in proxy.gets if get.offset % PART_BYTES]
    assert goes_on == [5] * 8


def test_only_what_is_missing_between_finished_parts_is_asked_for(
    store: S3Store, proxy: FaultProxy
) -> None:
    there = frozenset(range(2, PARTS, 5))

    journal = read(store, there)

    assert sorted(journal.done) == sorted(set(range(PARTS)) - there)
    assert asked_at(proxy.gets).isdisjoint(there)
    assert proxy.passed == len(CONTENT) - len(there) * PART_BYTES


def asked_at(gets: list[Get]) -> set[int]:
    return {get.offset // PART_BYTES for get in gets}
