"""Discovery with the system's resolver and a real name server."""

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from reconciler.condition import Reason
from tests.cluster.names import NAME, Names
from tests.cluster.network import DOMAIN, Host, Network, end
from tests.waiting import wait_for

pytestmark = pytest.mark.net

SERVICE = f"dns:{NAME}.{DOMAIN}.:8000"


@dataclass(frozen=True, kw_only=True)
class Told:
    """What discovery said at one time."""

    peers: list[str]
    reason: Reason
    message: str


@dataclass(kw_only=True)
class Finder:
    """Discovery that runs on a host."""

    process: subprocess.Popen[str]
    said: list[Told] = field(default_factory=list)

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            told = json.loads(line)
            self.said.append(Told(**{**told, "reason": Reason(told["reason"])}))

    def wait(self, holds: Callable[[Told], bool], *, what: str) -> Told:
        """Until the newest that it has said is so."""
        return wait_for(
            lambda: self.said[-1] if self.said and holds(self.said[-1]) else None,
            what=f"{what}, after {self.said[-3:]}",
        )

    def wait_peers(self, *hosts: str) -> Told:
        listed = sorted(f"[{host}]:8000" if ":" in host else f"{host}:8000" for host in hosts)
        return self.wait(
            lambda told: sorted(told.peers) == listed and told.reason is Reason.FOUND,
            what=f"{hosts} are found",
        )

    def wait_reason(self, reason: Reason, words: str = "") -> Told:
        return self.wait(
            lambda told: told.reason is reason and words in told.message, what=f"{reason}, {words}"
        )


@contextmanager
def finding(
    host: Host, peers: str = SERVICE, *, listen: str = "::", lag: float = 0.2
) -> Iterator[Finder]:
    words = [sys.executable, "-m", "tests.cluster.find_peers", peers, listen, str(lag)]
    process = subprocess.Popen([*host.inside, *words], stdout=subprocess.PIPE, text=True)
    finder = Finder(process=process)
    reading = threading.Thread(target=finder.read)
    reading.start()
    try:
        yield finder
    finally:
        process.kill()
        reading.join(30)
        end(process)


@pytest.fixture(autouse=True)
def answering(names: Names) -> Iterator[None]:
    """The name server is well before each test and after it."""
    names.revive()
    yield
    names.revive()


def test_every_address_of_both_families_but_our_own_is_a_peer(net: Network, names: Names) -> None:
    a, b, c = net.hosts.values()
    names.tell(*(address for host in (a, b, c) for address in (host.ipv4, host.ipv6)))
    with finding(a) as here, finding(b, f"dns:{NAME}:8000") as there:
        here.wait_peers(b.ipv4, b.ipv6, c.ipv4, c.ipv6)
        there.wait_peers(a.ipv4, a.ipv6, c.ipv4, c.ipv6)


def test_who_comes_is_found_and_who_goes_is_forgotten_after_a_while(
    net: Network, names: Names
) -> None:
    a, b, c = net.hosts.values()
    names.tell(a.ipv4, b.ipv4)
    with finding(a, lag=2.0) as here:
        here.wait_peers(b.ipv4)
        names.tell(a.ipv4, b.ipv4, c.ipv4)
        here.wait_peers(b.ipv4, c.ipv4)
        names.tell(a.ipv4, c.ipv4)
        here.wait_peers(c.ipv4)


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda names: names.tell(), "NXDOMAIN"),
        (Names.stop, "SERVFAIL"),
        (Names.fall_silent, "no answer within 0.5 s"),
    ],
    ids=["unknown", "gone", "silent"],
)
def test_the_last_peers_stay_while_the_name_cannot_be_looked_up(
    net: Network, names: Names, harm: Callable[[Names], None], said: str
) -> None:
    a, b, c = net.hosts.values()
    names.tell(a.ipv4, b.ipv4)
    with finding(a) as here:
        here.wait_peers(b.ipv4)
        harm(names)
        told = here.wait_reason(Reason.LOOKUP_FAILED, said)
        assert told.peers == [f"{b.ipv4}:8000"]
        names.revive()
        names.tell(a.ipv4, b.ipv4, c.ipv4)
        here.wait_peers(b.ipv4, c.ipv4)


@pytest.mark.parametrize(
    ("code", "said"), [(0, "no address"), (2, "SERVFAIL"), (3, "NXDOMAIN"), (5, "SERVFAIL")]
)
def test_each_answer_that_is_none_is_named(
    net: Network, names: Names, code: int, said: str
) -> None:
    a, b, _ = net.hosts.values()
    names.tell(a.ipv4, b.ipv4)
    with finding(a) as here:
        here.wait_peers(b.ipv4)
        names.stop()
        with refusing(net.bridge, code):
            told = here.wait_reason(Reason.LOOKUP_FAILED, said)
        assert told.peers == [f"{b.ipv4}:8000"]


@contextmanager
def refusing(host: Host, code: int) -> Iterator[None]:
    words = [sys.executable, "-m", "tests.cluster.refuse_names", host.ipv4, str(code)]
    process = subprocess.Popen([*host.inside, *words], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield
    finally:
        end(process)


def test_a_node_that_is_not_listed_itself_takes_up_nobody(net: Network, names: Names) -> None:
    a, b, c = net.hosts.values()
    names.tell(a.ipv4, b.ipv4)
    with finding(a) as here:
        here.wait_peers(b.ipv4)
        names.tell(b.ipv4, c.ipv4)
        told = here.wait_reason(Reason.SELF_MISSING)
        assert told.peers == [f"{b.ipv4}:8000"]
        assert "publishNotReadyAddresses" in told.message


def test_a_service_that_is_not_headless_is_no_agent(net: Network, names: Names) -> None:
    a, b, _ = net.hosts.values()
    names.tell(b.ipv4, b.ipv6)
    with finding(a) as here:
        told = here.wait_reason(Reason.NOT_HEADLESS)
        assert told.peers == []
        assert "clusterIP: None" in told.message


def test_a_node_that_has_just_started_waits_for_its_own_record(net: Network, names: Names) -> None:
    a, b, _ = net.hosts.values()
    names.tell(b.ipv4)
    with finding(a, lag=60.0) as here:
        assert here.wait_reason(Reason.NOT_READ_YET, b.ipv4).peers == []
        names.tell(a.ipv4, b.ipv4)
        here.wait_peers(b.ipv4)


def test_a_list_takes_names_and_addresses_and_this_node(net: Network, names: Names) -> None:
    a, b, c = net.hosts.values()
    names.tell(b.ipv4, b.ipv6)
    peers = f"{NAME}.{DOMAIN}.:8000,{a.ipv4}:8000,[{a.ipv6}]:8000,{c.ipv4}:8000,127.0.0.1:8000"
    with finding(a, peers) as here:
        here.wait_peers(b.ipv4, c.ipv4)


def test_doctor_looks_the_name_up_as_an_agent_would(
    net: Network, names: Names, tmp_path: Path
) -> None:
    a, b, _ = net.hosts.values()
    names.tell(a.ipv4, a.ipv6, b.ipv4, b.ipv6)
    words = ["--peers", SERVICE, "--listen", "0.0.0.0:8000", "--data-dir", str(tmp_path)]
    done = a.run(sys.executable, "-m", "reconciler", "doctor", *words, "--output", "json")
    checks = [each for each in json.loads(done.stdout)["checks"] if each["subject"] == "peers"]
    leads, family, answers = (each["message"] for each in checks)
    assert leads == f"{NAME}.{DOMAIN}. leads to 2 other addresses and this node"
    assert "--listen is for IPv4 alone" in family
    assert answers.startswith("no answer from 2 of 2 other addresses: ")
