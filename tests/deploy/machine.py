"""A machine with a real systemd as its process 1, in namespaces of its own over this one's files.

What is written there is gone with it; of this machine it sees files alone.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from reconciler.apply.cgroup import own_group, procs_of, remove
from tests.deploy.pid_namespace import first_below
from tests.waiting import wait_for, wait_until

_SCRIPT = Path(__file__).with_name("machine.sh")
_SYSTEMD = Path("/usr/lib/systemd/systemd")
_UNSHARE = ["unshare", "-m", "-p", "-f", "-C", "-u", "-i", "-n", "--kill-child"]


class Failed(AssertionError):
    """A command's own words."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """`pid`: of its systemd, as seen from here. `folder`: seen there as /shared."""

    pid: int
    folder: Path

    def run(self, *command: str | Path, check: bool = True, seconds: float = 300.0) -> str:
        """Run a command as root. Returns what it prints on both its outputs.

        Raises:
            Failed: It ended with another status than 0.
        """
        enter = ["nsenter", "--target", str(self.pid), "--all", "--root", "--wd"]
        done = subprocess.run(
            [*enter, *map(str, command)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=seconds,
            env={"PATH": "/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin"},
        )
        if check and done.returncode:
            log = (
                ""
                if command[0] == "journalctl"
                else self.run("journalctl", "-n", "30", check=False)
            )
            raise Failed(f"{command} ended with {done.returncode}:\n{done.stdout}\n{log}")
        return done.stdout

    def shell(self, line: str, *, check: bool = True) -> str:
        return self.run("bash", "-c", line, check=check)

    def properties(self, unit: str, *names: str) -> dict[str, str]:
        """What `systemctl show` says."""
        shown = self.run("systemctl", "show", unit, f"--property={','.join(names)}")
        return dict(line.split("=", 1) for line in shown.splitlines())

    def log(self, unit: str) -> str:
        return self.run("journalctl", "--no-pager", "-o", "cat", "-u", unit, check=False)


def why_no_machine() -> str | None:
    """In the words of a skip; None: one can be made."""
    if not isinstance(own_group(), Path):
        return "no cgroup v2 that can be written"
    if os.geteuid() != 0 or not _SYSTEMD.exists():
        return "needs the right to mount"
    mount = ["mount", "-t", "tmpfs", "none", "/mnt"]
    probe = subprocess.run([*_UNSHARE, *mount], capture_output=True, check=False)
    return "needs the right to mount" if probe.returncode else None


@contextlib.contextmanager
def machine(folder: Path, binds: Mapping[Path, str]) -> Iterator[Machine]:
    """One that has started. `binds`: folders of this machine, and where they are seen there."""
    parent = own_group()
    assert isinstance(parent, Path)
    group = parent / f"machine-{os.getpid()}"
    group.mkdir()
    places = [str(each) for pair in binds.items() for each in pair]
    enter = f'echo 0 > {procs_of(group)} && exec "$@"'
    with (folder / "machine.log").open("wb") as log:
        process = subprocess.Popen(
            ["sh", "-c", enter, "sh", *_UNSHARE, "bash", str(_SCRIPT), str(folder), *places],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield _started(process, folder)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(30)
        wait_until(lambda: remove(group) is None, what=f"{group} is empty")


def _started(process: subprocess.Popen[bytes], folder: Path) -> Machine:
    def said() -> str:
        logs = (folder / name for name in ("machine.log", "systemd.log"))
        return "\n".join(each.read_text(errors="replace") for each in logs if each.exists())

    def look() -> Machine | None:
        assert process.poll() is None, said()
        first = first_below(process.pid)
        if first is None or Path(f"/proc/{first}/comm").read_text() != "systemd\n":
            return None
        made = Machine(pid=first, folder=folder)
        state = made.run("systemctl", "is-system-running", check=False).strip()
        return made if state in ("running", "degraded") else None

    try:
        return wait_for(look, what="systemd", seconds=60)
    except AssertionError as exc:
        raise AssertionError(f"{exc}\n{said()}") from exc
