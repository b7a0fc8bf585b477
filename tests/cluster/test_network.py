"""The network of these tests: each harm bites, and nothing of it stays."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.cluster.names import Names, look_up
from tests.cluster.network import Host, Network, network, skip_without_namespaces
from tests.waiting import wait_until

pytestmark = pytest.mark.net

_PORT = 8000
_ASK = """
import sys, urllib.request
ask = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
print(ask(f"http://{sys.argv[1]}:8000/who", timeout=1).read().decode())
"""
_HEAR = """
import socket
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as heard:
    heard.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    heard.bind(("", 9000))
    print("ready", flush=True)
    while heard.recv(8) != b"end":
        print("heard", flush=True)
"""


@pytest.fixture
def answering(net: Network, tmp_path: Path) -> Iterator[None]:
    """Each host answers with its name, for both families."""
    processes = []
    for name, host in net.hosts.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / "who").write_text(name)
        serve = [sys.executable, "-m", "http.server", str(_PORT), "--bind", "::"]
        processes.append(
            subprocess.Popen(
                [*host.inside, *serve, "--directory", str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )
    try:
        for name, host in net.hosts.items():
            wait_until(lambda host=host, name=name: _asked(host) == name, what=name)  # type: ignore[misc]
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait(30)


def _asked(host: Host) -> str | None:
    """By the test's own process."""
    try:
        return httpx.get(f"http://{host.ipv4}:{_PORT}/who", timeout=1, trust_env=False).text
    except httpx.HTTPError:
        return None


def _asks(asking: Host, address: str) -> str | None:
    """What one host gets of another."""
    done = asking.run(sys.executable, "-c", _ASK, f"[{address}]" if ":" in address else address)
    return done.stdout.strip() or None


@pytest.mark.usefixtures("answering")
def test_every_host_reaches_every_other_one(net: Network) -> None:
    for name, host in net.hosts.items():
        for asking in net.hosts.values():
            assert _asks(asking, host.ipv4) == name
            assert _asks(asking, host.ipv6) == name


@pytest.mark.usefixtures("answering")
def test_a_cut_host_is_out_of_reach_until_it_is_mended(net: Network) -> None:
    a, c = net.hosts["a"], net.hosts["c"]
    net.cut("c")
    assert (_asks(a, c.ipv4), _asks(c, a.ipv4), _asked(c)) == (None, None, None)
    assert _asks(c, c.ipv4) == "c"
    assert _asked(a) == "a"
    net.mend("c")
    wait_until(lambda: _asks(a, c.ipv4) == "c", what="the link is back")


@pytest.mark.usefixtures("answering")
def test_who_is_barred_does_not_come_in_and_others_do(net: Network) -> None:
    a, b, c = (net.hosts[name] for name in "abc")
    net.bar("c", "a")
    assert (_asks(a, c.ipv4), _asks(a, c.ipv6)) == (None, None)
    assert (_asks(b, c.ipv4), _asked(c)) == ("c", "c")
    net.mend("c")
    assert _asks(a, c.ipv4) == "c"


@pytest.mark.usefixtures("answering")
def test_delayed_packets_come_late_and_all_of_them(net: Network) -> None:
    """The connection, and then the request, each wait for a packet that comes in."""
    c = net.hosts["c"]
    net.delay("c", 100)
    began = time.monotonic()
    assert _asked(c) == "c"
    assert time.monotonic() - began >= 0.2
    net.mend("c")
    assert _asked(c) == "c"


def test_lost_packets_are_lost_by_chance(net: Network) -> None:
    a, c = net.hosts["a"], net.hosts["c"]
    send = "import socket\nwith socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as to:\n    "
    many = f'for _ in range(200): to.sendto(b"one", ("{c.ipv4}", 9000))'
    with _hearing(c) as heard:
        net.lose("c", 50)
        assert a.run(sys.executable, "-c", f"{send}{many}").returncode == 0
        net.mend("c")
        end = f'to.sendto(b"end", ("{c.ipv4}", 9000))'
        assert a.run(sys.executable, "-c", f"{send}{end}").returncode == 0
        assert 40 < heard() < 160


@contextmanager
def _hearing(host: Host) -> Iterator[Callable[[], int]]:
    """How many datagrams came before one that says that it was the last."""
    words = [*host.inside, sys.executable, "-c", _HEAR]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield lambda: process.communicate(timeout=30)[0].count("heard")
        finally:
            process.kill()


def test_a_name_has_the_addresses_that_it_is_told(net: Network, names: Names) -> None:
    a = net.hosts["a"]
    names.tell(a.ipv4)
    assert look_up(a) == {a.ipv4}
    names.tell()
    assert look_up(a) == set()
    names.tell(a.ipv6, a.ipv4)
    assert look_up(a) == {a.ipv4, a.ipv6}


@pytest.mark.parametrize("end", [Names.stop, Names.fall_silent], ids=["gone", "silent"])
def test_a_name_server_may_be_dead(
    net: Network, names: Names, end: Callable[[Names], None]
) -> None:
    a = net.hosts["a"]
    names.tell(a.ipv4)
    end(names)
    assert look_up(a) == set()
    names.revive()
    assert look_up(a) == {a.ipv4}


def test_nothing_of_a_network_stays_though_its_test_fails(tmp_path: Path) -> None:
    """What a run left that was killed itself, the next one removes."""
    skip_without_namespaces()
    before = _namespaces()
    with suppress(RuntimeError), network(tmp_path, "a") as made:
        sleeper = subprocess.Popen([*made.hosts["a"].inside, "sleep", "3600"])
        wait_until(lambda: _name_of(sleeper.pid) == "sleep", what="it sleeps")
        raise RuntimeError
    assert sleeper.wait(30) == -signal.SIGKILL
    assert _namespaces() == before
    dead = subprocess.Popen(["true"])
    dead.wait(30)
    left = f"xgen-test-{dead.pid}-a"
    subprocess.run(["ip", "netns", "add", left], check=True)
    with network(tmp_path, "a"):
        assert left not in _namespaces()


def _namespaces() -> set[str]:
    folder = Path("/run/netns")
    return set(os.listdir(folder)) if folder.exists() else set()


def _name_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text(encoding="ascii").strip()
