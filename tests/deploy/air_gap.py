"""A host without a way out, whose every packet is seen, and whose folders are its own.

    its namespace: eth0 --- bridge: gateway and DNS by name, which forwards and answers nothing
                    |
                 sniffer

There is a default route, so that an attempt leaves the host and is seen; without one it would
fail unseen. What it writes to this machine's folders lies in layers above them.
"""

import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.network import Host, Network, end, network
from tests.deploy import sniffer
from tests.waiting import wait_until

_LAST = "203.0.113.99"
LAYERED = ("/etc", "/media", "/opt", "/root", "/srv", "/usr/local", "/var")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """`folder`: what is written to `/srv` lies in its `srv`, and so on."""

    folder: Path

    def of(self, path: str) -> Path:
        """Where what is at this path lies, if it was written in here."""
        return self.folder / path.lstrip("/")

    def commands(self) -> list[str]:
        """What lays them over this machine's folders, in a mount namespace of its own."""
        lines = ["set -e", "mount --make-rprivate /"]
        for name in LAYERED:
            upper = self.of(name)
            work = self.folder / "work" / name.strip("/").replace("/", "-")
            for each in (upper, work):
                each.mkdir(parents=True, exist_ok=True)
            options = f"lowerdir={name},upperdir={upper},workdir={work}"
            lines.append(f"mount -t overlay overlay -o {shlex.quote(options)} {name}")
        return lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Gapped:
    """`log`: what the sniffer has said so far."""

    host: Host
    log: Path

    def packets(self) -> list[str]:
        """All that crossed the cable until now; once, as what it sends itself is then there, too.

        It ends with a packet of its own: when that is seen, all before it was, and the sniffer
        works.
        """
        send = f"import socket; socket.socket(type=2).sendto(b'', ('{_LAST}', 9))"
        done = self.host.run(sys.executable, "-c", send)
        assert done.returncode == 0, done.stderr
        wait_until(lambda: f"> {_LAST}:9" in self._said(), what="the sniffer's last packet")
        lines = self._said().splitlines()[1:]
        last = next(at for at, line in enumerate(lines) if _LAST in line)
        before = lines[:last]
        # That packet's own way to the gateway is not what was looked for.
        return before if any(not line.startswith("arp ") for line in before) else []

    def _said(self) -> str:
        return self.log.read_text(encoding="ascii")


@contextmanager
def gapped(folder: Path) -> Iterator[Gapped]:
    """The host, while it is listened to."""
    with network(folder, names="a") as made:
        host = made.hosts["a"]
        _lead_nowhere(made, host)
        log = folder / "packets.log"
        with log.open("w", encoding="ascii") as output:
            words = ["nsenter", f"--net=/run/netns/{host.namespace}", sys.executable]
            process = subprocess.Popen(
                [*words, sniffer.__file__, "eth0"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                text=True,
            )
            try:
                wait_until(
                    lambda: log.read_text(encoding="ascii").startswith("ready\n"),
                    what="the sniffer listens",
                )
                yield Gapped(host=host, log=log)
            finally:
                end(process)


def _lead_nowhere(made: Network, host: Host) -> None:
    for family, gateway in (("-4", made.bridge.ipv4), ("-6", made.bridge.ipv6)):
        words = ["ip", family, "-n", host.namespace, "route", "add", "default", "via", gateway]
        subprocess.run(words, check=True, capture_output=True)


def run(
    script: str,
    layers: Layers,
    *,
    folder: Path,
    env: Mapping[str, str],
    host: Host | None = None,
) -> subprocess.CompletedProcess[str]:
    """A shell script over these layers, in its own process namespace: nothing of it outlives it.

    Args:
        folder: Where it begins.
        host: Whose network it has; None: this machine's.
    """
    inside = [f"nsenter --net=/run/netns/{host.namespace}"] if host else []
    if host:
        names = layers.of("/etc/resolv.conf")
        names.parent.mkdir(parents=True, exist_ok=True)
        names.write_text(host.resolv_conf.read_text(encoding="ascii"), encoding="ascii")
    lines = [*layers.commands(), f"cd {shlex.quote(str(folder))}", 'exec "$@"']
    words = [
        *(word for each in inside for word in each.split()),
        *("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
        *("sh", "-c", "\n".join(lines), "sh"),
        *("env", "-i", *(f"{name}={value}" for name, value in env.items())),
        *("bash", "-euo", "pipefail", "-c", script),
    ]
    return subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
