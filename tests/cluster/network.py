"""Hosts on one network, each in a network namespace, and what may befall their links. Needs root.

        the test's process          a              b              c        their own namespaces
                |                   |              |              |
                +-------------------+---- bridge --+--------------+        one more, with the DNS

A host's packets are harmed where they come in: loss by chance, and delay by a process that holds
them (`delay_packets`), since many kernels lack netem.
"""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

import pytest

from tests.cluster import delay_packets

DOMAIN = "default.svc.cluster.local"
_PREFIX = "xgen-test"
_QUEUE = 0
_count = itertools.count()
_SEARCH = f"search {DOMAIN} svc.cluster.local cluster.local\noptions ndots:5 timeout:1 attempts:1\n"


@dataclass(kw_only=True)
class Host:
    """One host. `link`: the bridge's end of its cable. `resolv_conf`: what its processes see."""

    namespace: str
    link: str
    ipv4: str
    ipv6: str
    resolv_conf: Path
    harm: "Harm" = field(default_factory=lambda: Harm())

    @property
    def inside(self) -> list[str]:
        """What stands before a command to run it there. The process keeps its pid."""
        script = 'mount --bind "$1" /etc/resolv.conf && shift && exec "$@"'
        return [
            *("nsenter", f"--net=/run/netns/{self.namespace}"),
            *("unshare", "--mount", "sh", "-c", script, "sh", str(self.resolv_conf)),
        ]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command there, whatever comes of it."""
        return subprocess.run(
            [*self.inside, *words], capture_output=True, text=True, timeout=60, check=False
        )


@dataclass(kw_only=True)
class Harm:
    """To what comes in at a host. `barred`: addresses whose packets are dropped."""

    barred: tuple[str, ...] = ()
    loss_percent: int = 0
    delay: subprocess.Popen[str] | None = None

    def rules(self, family: int) -> str:
        """In the words of iptables-restore, which begins anew. `family`: 4 or 6."""
        lines = [f"-s {each} -j DROP" for each in self.barred if ip_address(each).version == family]
        chance = f"-m statistic --mode random --probability {self.loss_percent / 100}"
        lines += [f"{chance} -j DROP"] * bool(self.loss_percent)
        lines += [f"-j NFQUEUE --queue-num {_QUEUE}"] * (self.delay is not None)
        return "".join(
            (
                "*filter\n:INPUT ACCEPT\n",
                *(f"-A INPUT -i eth0 {line}\n" for line in lines),
                "COMMIT\n",
            )
        )


@dataclass(kw_only=True)
class Network:
    """`bridge`: where the others meet; it answers for DNS. `hosts`: by name. `number`: in
    all their addresses."""

    number: int
    bridge: Host
    hosts: dict[str, Host]

    @property
    def outside(self) -> str:
        """Where its hosts find the test's own process."""
        return _ipv4(self.number, 253)

    def cut(self, name: str) -> None:
        """Nothing comes or goes, and nobody is told, as by a cable that is pulled."""
        self._set_link(name, "down")

    def mend(self, name: str) -> None:
        """Of all that was done to it."""
        host = self.hosts[name]
        delay, host.harm = host.harm.delay, Harm()
        self._apply(host)
        if delay is not None:  # after its rule: a queue without a reader drops all
            end(delay)
        self._set_link(name, "up")

    def move(self, name: str, at: int) -> None:
        """To other addresses of the same network: `at` is their last part."""
        host = self.hosts[name]
        _ip("-n", host.namespace, "addr", "flush", "dev", "eth0")
        host.ipv4, host.ipv6 = _ipv4(self.number, at), _ipv6(self.number, at)
        _address(self.number, at, "dev", "eth0", namespace=host.namespace)

    def bar(self, name: str, *others: str, families: Sequence[int] = (4, 6)) -> None:
        """What these say does not come in there; what it says goes out."""
        host = self.hosts[name]
        of = {4: lambda other: other.ipv4, 6: lambda other: other.ipv6}
        barred = (of[family](self.hosts[other]) for other in others for family in families)
        host.harm.barred = tuple(barred)
        self._apply(host)

    def lose(self, name: str, percent: int) -> None:
        host = self.hosts[name]
        host.harm.loss_percent = percent
        self._apply(host)

    def delay(self, name: str, milliseconds: int) -> None:
        """Every packet, in its order."""
        host = self.hosts[name]
        words = [sys.executable, delay_packets.__file__, str(_QUEUE), str(milliseconds)]
        process = subprocess.Popen(
            [*host.inside, *words], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            end(process)
            pytest.skip("no packet queues (NFQUEUE) in this kernel")
        host.harm.delay = process
        self._apply(host)

    def _apply(self, host: Host) -> None:
        for family, program in ((4, "iptables-restore"), (6, "ip6tables-restore")):
            done = subprocess.run(
                [*host.inside, program],
                input=host.harm.rules(family),
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, done.stderr

    def _set_link(self, name: str, state: str) -> None:
        _ip("-n", self.bridge.namespace, "link", "set", self.hosts[name].link, state)


def end(process: subprocess.Popen[str]) -> None:
    """And wait for it. Stopped ones end, too."""
    process.kill()
    process.wait(30)
    if process.stdout is not None:
        process.stdout.close()


def skip_without_namespaces() -> None:
    """Skips a test on a machine that does not let us make any."""
    tools = ("ip", "iptables-restore", "nsenter", "unshare", "dnsmasq")
    missing = [tool for tool in tools if shutil.which(tool) is None]
    made = subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True, check=False)
    if missing or made.returncode:
        pytest.skip(f"no network namespaces of our own; missing: {missing or 'the right'}")


@contextmanager
def network(folder: Path, names: Sequence[str] = "abc") -> Iterator[Network]:
    """Until the block is left. Nothing of it stays, processes in it neither."""
    _sweep()
    with ExitStack() as stack:
        run = f"{_PREFIX}-{os.getpid()}-{next(_count)}"
        bridge_namespace = _namespace(stack, f"{run}-bridge")
        number = _claim(stack, bridge_namespace)
        made = Network(
            number=number,
            bridge=_host(folder, bridge_namespace, number, 254),
            hosts={
                name: _host(folder, _namespace(stack, f"{run}-{name}"), number, at)
                for at, name in enumerate(names, start=1)
            },
        )
        stack.callback(_let_go, made)
        _join(made)
        yield made


def _let_go(made: Network) -> None:
    for host in made.hosts.values():
        if host.harm.delay is not None:
            end(host.harm.delay)


def _namespace(stack: ExitStack, name: str) -> str:
    _ip("netns", "add", name)
    stack.callback(_remove, name)
    return name


def _remove(namespace: str) -> None:
    for pid in _ip("netns", "pids", namespace).split():
        with suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    _ip("netns", "del", namespace)


def _sweep() -> None:
    """What test runs have left that were killed themselves."""
    for listed in json.loads(_ip("-json", "netns", "list") or "[]"):
        namespace: str = listed["name"]
        pid = namespace.removeprefix(f"{_PREFIX}-").split("-")[0]
        if namespace.startswith(f"{_PREFIX}-") and not os.path.exists(f"/proc/{pid}"):
            _remove(namespace)


def _claim(stack: ExitStack, bridge: str) -> int:
    """A number for our addresses that no other test run has: who has made its link has it."""
    for number in range(256):
        link, far = f"xgen{number}", f"xgen{number}-far"
        words = ["ip", "link", "add", link, "type", "veth", "peer", "name", far]
        if subprocess.run(words, capture_output=True, check=False).returncode == 0:
            stack.callback(_ip, "link", "del", link)
            _ip("link", "set", far, "netns", bridge, "name", "uplink")
            _address(number, 253, "dev", link)
            _ip("link", "set", link, "up")
            return number
    raise AssertionError("every number of a network is taken")


def _host(folder: Path, namespace: str, number: int, at: int) -> Host:
    _ip("-n", namespace, "link", "set", "lo", "up")
    resolv_conf = folder / f"{namespace}.resolv.conf"
    resolv_conf.write_text(f"nameserver {_ipv4(number, 254)}\n{_SEARCH}", encoding="ascii")
    return Host(
        namespace=namespace,
        link=f"link{at}",
        ipv4=_ipv4(number, at),
        ipv6=_ipv6(number, at),
        resolv_conf=resolv_conf,
    )


def _join(made: Network) -> None:
    bridge, number = made.bridge.namespace, made.number
    _ip("-n", bridge, "link", "add", "bridge", "type", "bridge")
    _address(number, 254, "dev", "bridge", namespace=bridge)
    for link in ("bridge", "uplink"):
        _ip("-n", bridge, "link", "set", link, "up")
    _ip("-n", bridge, "link", "set", "uplink", "master", "bridge")
    for at, host in enumerate(made.hosts.values(), start=1):
        peer = ("peer", "name", "eth0", "netns", host.namespace)
        _ip("-n", bridge, "link", "add", host.link, "type", "veth", *peer)
        _ip("-n", bridge, "link", "set", host.link, "master", "bridge", "up")
        _address(number, at, "dev", "eth0", namespace=host.namespace)
        _ip("-n", host.namespace, "link", "set", "eth0", "up")


def _address(number: int, at: int, *device: str, namespace: str | None = None) -> None:
    where = ["-n", namespace] if namespace else []
    _ip(*where, "addr", "add", f"{_ipv4(number, at)}/24", *device)
    _ip(*where, "addr", "add", f"{_ipv6(number, at)}/64", *device, "nodad")


def _ipv4(number: int, at: int) -> str:
    """Of the block for benchmarks (RFC 2544), which no network uses."""
    return f"198.18.{number}.{at}"


def _ipv6(number: int, at: int) -> str:
    return str(ip_address(f"fd5c:9e11:{number:x}::{at:x}"))


def _ip(*words: str) -> str:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"
    return done.stdout
