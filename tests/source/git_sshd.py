"""A real sshd on an address of this machine alone, with a host key of its own."""

import getpass
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tests.waiting import wait_until

ADDRESS = "127.0.0.1"


@dataclass(kw_only=True)
class SshHost:
    """`key`: a client's that it knows. `known_hosts`: the file with its own key."""

    folder: Path
    port: int

    @property
    def key(self) -> Path:
        return self.folder / "with blank" / "client"

    @property
    def known_hosts(self) -> Path:
        return self.folder / "with blank" / "known_hosts"

    @property
    def place(self) -> str:
        return f"{getpass.getuser()}@{ADDRESS}:{self.port}"

    def tell_key(self) -> None:
        """Write its own key into the file of known hosts."""
        kind, key = (self.folder / "host.pub").read_text().split()[:2]
        self.known_hosts.write_text(f"[{ADDRESS}]:{self.port} {kind} {key}\n")


def make_key(path: Path) -> None:
    """Another one than before, without passphrase."""
    for old in (path, path.with_name(f"{path.name}.pub")):
        old.unlink(missing_ok=True)
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "test", "-f", str(path)]
    subprocess.run(words, check=True, timeout=30)


@contextmanager
def sshd(folder: Path) -> Iterator[SshHost]:
    """Answers until the block is left."""
    host = SshHost(folder=folder, port=free_port())
    host.key.parent.mkdir(parents=True)
    make_key(folder / "host")
    make_key(host.key)
    (folder / "authorized_keys").write_bytes(host.key.with_name("client.pub").read_bytes())
    host.tell_key()
    with running(host):
        yield host


@contextmanager
def running(host: SshHost) -> Iterator[None]:
    """With the host key that is in its folder now."""
    config = host.folder / "sshd_config"
    config.write_text(
        f"""Port {host.port}
ListenAddress {ADDRESS}
HostKey {host.folder}/host
AuthorizedKeysFile {host.folder}/authorized_keys
PidFile none
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
AcceptEnv GIT_PROTOCOL
"""
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    with (host.folder / "sshd.log").open("ab") as log:
        process = subprocess.Popen(
            ["/usr/sbin/sshd", "-D", "-e", "-f", str(config)],
            stdin=subprocess.DEVNULL,
            stderr=log,
            start_new_session=True,
        )
    try:
        wait_until(lambda: process.poll() is not None or _answers(host.port), what="sshd")
        assert process.returncode is None, (host.folder / "sshd.log").read_text()
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


def free_port() -> int:
    """One of the kernel's choice: sshd cannot say which it has got."""
    with socket.socket() as taken:
        taken.bind((ADDRESS, 0))
        return int(taken.getsockname()[1])


def _answers(port: int) -> bool:
    try:
        with socket.create_connection((ADDRESS, port), timeout=5) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False
