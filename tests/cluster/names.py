"""A DNS server that has the addresses of a headless Service, as the cluster's own would."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.network import DOMAIN, Host, end
from tests.waiting import wait_until

NAME = "models"
"""Of the Service, as it is asked for: the search list of /etc/resolv.conf makes it whole."""


@dataclass(kw_only=True)
class Names:
    """dnsmasq, in a process of its own at `host`. `name`: the one it knows, in the Service's
    namespace or whole, with a dot at its end."""

    folder: Path
    host: Host
    name: str = NAME
    addresses: tuple[str, ...] = ()
    process: subprocess.Popen[str] | None = field(default=None, repr=False)

    def tell(self, *addresses: str) -> None:
        """These and no others, from now on; none: the name is unknown."""
        self.addresses = addresses
        whole = self.name[:-1] if self.name.endswith(".") else f"{self.name}.{DOMAIN}"
        lines = [f"{address} {whole}\n" for address in addresses]
        self._records.write_text("".join(lines), encoding="ascii")
        if self.process is not None:
            self.process.send_signal(signal.SIGHUP)
            self._wait_told()

    def start(self) -> None:
        with (self.folder / "dnsmasq.log").open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(*self.host.inside, "dnsmasq", "--no-daemon", "--conf-file=/dev/null"),
                    *(f"--listen-address={self.host.ipv4}", "--bind-interfaces", "--no-resolv"),
                    *("--no-hosts", f"--addn-hosts={self._records}", "--local-ttl=1"),
                    *("--local=/cluster.local/", "--user=root", "--pid-file="),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                text=True,
            )
        self._wait_told()

    def revive(self) -> None:
        """After it was stopped, or fell silent."""
        if self.process is None:
            self.start()
        self._alive().send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """Whoever asks is told at once that nobody answers there."""
        if self.process is not None:
            end(self.process)
            self.process = None

    def fall_silent(self) -> None:
        """Whoever asks waits."""
        self._alive().send_signal(signal.SIGSTOP)

    def _alive(self) -> subprocess.Popen[str]:
        assert self.process is not None
        return self.process

    def _wait_told(self) -> None:
        told = set(self.addresses)
        wait_until(lambda: look_up(self.host, self.name) == told, what=f"the name leads to {told}")

    @property
    def _records(self) -> Path:
        return self.folder / "records"


@contextmanager
def serve_names(folder: Path, host: Host, *addresses: str, name: str = NAME) -> Iterator[Names]:
    names = Names(folder=folder, host=host, addresses=addresses, name=name)
    names.tell(*addresses)
    try:
        names.start()
        yield names
    finally:
        names.stop()


def look_up(host: Host, name: str = NAME) -> set[str]:
    """What a process on this host gets for the name."""
    lines = host.run("getent", "ahosts", name).stdout.splitlines()
    return {line.split()[0] for line in lines}
