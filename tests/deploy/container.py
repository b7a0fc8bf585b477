"""A container: a process with namespaces, mounts and an identity of its own.

Its root is read-only where the template says so: the machine's programs and libraries, this
repository with its environment, a small /etc, and the volumes where they are mounted.
"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cluster.network import Host
from tests.deploy.chroot import Mount
from tests.deploy.pid_namespace import first_below, members_of, namespace_of
from tests.e2e.agent import REPOSITORY
from tests.waiting import wait_for

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_ETC = ("ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "ssl", "localtime", "services")
_USUAL = (
    *("chown", "dac_override", "fowner", "fsetid", "kill"),
    *("setgid", "setuid", "setpcap", "net_bind_service"),
)
"""Of the capabilities that a runtime gives by default."""


@dataclass(frozen=True, kw_only=True)
class Identity:
    """What a process may do. `capabilities`: of the bounding set."""

    uid: int
    gid: int
    groups: tuple[int, ...]
    capabilities: tuple[str, ...]
    may_gain: bool

    @property
    def argv(self) -> list[str]:
        """What stands before a command."""
        bounding = ",".join(["-all", *(f"+{each}" for each in self.capabilities)])
        groups = ",".join(map(str, self.groups))
        return [
            *("setpriv", f"--reuid={self.uid}", f"--regid={self.gid}"),
            f"--groups={groups}" if groups else "--clear-groups",
            *("--inh-caps=-all", f"--bounding-set={bounding}"),
            *(() if self.may_gain else ("--no-new-privs",)),
            "--pdeathsig=keep",  # of unshare, which a change of identity clears
            "--",
        ]


def identity(
    pod: Mapping[str, Any], container: Mapping[str, Any], image: tuple[int, int]
) -> Identity:
    """Of the security contexts of a pod and a container, the second of which goes first.

    Args:
        image: Its user and group.
    """
    said = {**pod, **container}
    uid = said.get("runAsUser", image[0])
    assert not (said.get("runAsNonRoot") and uid == 0), "container has runAsNonRoot and uid 0"
    capabilities = container.get("capabilities", {})
    kept = [] if "ALL" in capabilities.get("drop", ()) else _USUAL
    added = [each.removeprefix("CAP_").lower() for each in capabilities.get("add", ())]
    fs_group = [pod["fsGroup"]] if "fsGroup" in pod else []
    return Identity(
        uid=uid,
        gid=said.get("runAsGroup", image[1] if uid == image[0] else 0),
        groups=(*pod.get("supplementalGroups", ()), *fs_group),
        capabilities=tuple(dict.fromkeys([*kept, *added])),
        may_gain=container.get("allowPrivilegeEscalation", True),
    )


@dataclass(kw_only=True)
class Container:
    """A running one; `process` waits for its process 1, whose end is that of all in it."""

    process: subprocess.Popen[bytes]
    identity: Identity

    @property
    def first(self) -> int | None:
        """The pid of its process 1, as this machine counts; None: it has ended."""
        return first_below(self.process.pid)

    @property
    def exited(self) -> int | None:
        return self.process.poll()

    def send(self, number: signal.Signals) -> None:
        """To its process 1."""
        first = self.first
        if first is not None:
            with suppress(ProcessLookupError):
                os.kill(first, number)

    def pids(self) -> list[int]:
        """All in it, process 1 first; as this machine counts."""
        first = self.first
        if first is None or (own := namespace_of(first)) is None:
            return []
        return [first, *(pid for pid in members_of(own) if pid != first)]

    def run(self, words: Sequence[str], *, seconds: float) -> int:
        """A further process in it, as kubelet's `exec`: its exit status."""
        first = self.first
        if first is None:
            return 255
        inside = ["nsenter", f"--target={first}", "--mount", "--uts", "--ipc", "--net", "--pid"]
        done = subprocess.run(
            [*inside, f"--root=/proc/{first}/root", "--wd=/", *self.identity.argv, *words],
            env=_environment(first),
            capture_output=True,
            timeout=seconds,
            check=False,
        )
        return done.returncode

    def wait_started(self) -> None:
        wait_for(lambda: self.first or self.exited, what="a container's process 1")


def start(
    argv: Sequence[str],
    *,
    folder: Path,
    host: Host,
    name: str,
    mounts: Sequence[Mount],
    identity: Identity,
    read_only: bool,
    working_folder: str,
    environment: Mapping[str, str],
) -> Container:
    """A process of its own in this host's network.

    Args:
        folder: For its root, its /etc and its log.
        name: Of its host, as it sees it.
        working_folder: In it, where the process begins.
    """
    root = folder / "root"
    root.mkdir(exist_ok=True)
    lines = [
        "set -e",
        f"mount -t tmpfs -o mode=755 tmpfs {root}",
        *_standing(root, identity),
        f"echo {shlex.quote(name)} > /proc/sys/kernel/hostname",
        *(
            line
            for mount in _outer_first([*_image(folder), *mounts])
            for line in _bind(root, mount)
        ),
        *([f"mount -o remount,ro {root}"] if read_only else []),
        shlex.join(
            ["exec", "chroot", str(root), "env", f"--chdir={working_folder}", *identity.argv, *argv]
        ),
    ]
    inside = ["unshare", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child"]
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(
            [
                "nsenter",
                f"--net=/run/netns/{host.namespace}",
                *inside,
                "sh",
                "-c",
                "\n".join(lines),
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=dict(environment),
            start_new_session=True,
        )
    return Container(process=process, identity=identity)


def write_etc(
    folder: Path, *, host: Host, name: str, namespace: str, user: tuple[int, int]
) -> None:
    """As the image has it, with what kubelet and the runtime put there."""
    etc = folder / "etc"
    etc.mkdir(parents=True)
    for each in _ETC:
        source = Path("/etc", each)
        if source.is_dir():
            shutil.copytree(source, etc / each, symlinks=True)
        elif source.exists():
            shutil.copy(source, etc / each, follow_symlinks=each == "localtime")
    nameserver = host.resolv_conf.read_text(encoding="ascii").splitlines()[0]
    search = f"search {namespace}.svc.cluster.local svc.cluster.local cluster.local"
    texts = {
        "passwd": "root:x:0:0::/root:/bin/sh\nxgen:x:{}:{}::/home/xgen:/bin/false\n".format(*user),
        "group": f"root:x:0:\nxgen:x:{user[1]}:\n",
        "nsswitch.conf": "hosts: files dns\n",
        "resolv.conf": f"{nameserver}\n{search}\noptions ndots:5 timeout:1 attempts:2\n",
        "hosts": f"127.0.0.1 localhost\n::1 localhost\n{host.ipv4} {name}\n",
        "hostname": f"{name}\n",
    }
    for each, text in texts.items():
        (etc / each).write_text(text, encoding="utf-8")


def _image(folder: Path) -> list[Mount]:
    """What an image would have: programs, our environment, /etc."""
    own = dict.fromkeys(Path(each).resolve() for each in (REPOSITORY, sys.prefix, sys.base_prefix))
    outer = [each for each in own if not any(each.is_relative_to(o) for o in own if o != each)]
    folders = [each for each in outer if not each.is_relative_to("/usr")]
    return [
        Mount(source=Path("/usr"), target="/usr"),
        Mount(source=folder / "etc", target="/etc", writable=True),
        *(Mount(source=each, target=str(each)) for each in folders),
    ]


def _standing(root: Path, identity: Identity) -> list[str]:
    """The links of a merged /usr, or what stands for it; /proc, /sys, /dev, an empty /tmp, and the
    folders of the image's user."""
    lines = []
    own = [f"{root}/{each}" for each in ("home/xgen", "var/lib/xgen-model", "app/models")]
    for each in ("bin", "sbin", "lib", "lib32", "lib64"):
        link = Path("/", each)
        if link.is_symlink():
            lines.append(f"ln -s {os.readlink(link)} {root}/{each}")
        elif link.is_dir():
            lines.append(f"mkdir {root}/{each} && mount --bind -o ro {link} {root}/{each}")
    return [
        *lines,
        f"mkdir -p {root}/proc {root}/sys {root}/dev {root}/root {root}/run {root}/tmp {root}/var",
        f"ln -s ../run {root}/var/run",
        f"chmod 1777 {root}/tmp",
        f"install -d -o {identity.uid} -g {identity.gid} {' '.join(own)}",
        f"mount -t proc proc {root}/proc",
        f"mount --bind -o ro /sys {root}/sys",
        f"mount -t tmpfs -o mode=755 tmpfs {root}/dev",
        *(f"touch {root}/dev/{each}" for each in _DEVICES),
        *(f"mount --bind /dev/{each} {root}/dev/{each}" for each in _DEVICES),
        f"mkdir -m 1777 {root}/dev/shm && ln -s /proc/self/fd {root}/dev/fd",
    ]


def _bind(root: Path, mount: Mount) -> list[str]:
    target = shlex.quote(f"{root}{mount.target}")
    make = f"mkdir -p {target}"
    if not mount.source.is_dir():
        make = f'mkdir -p "$(dirname {target})" && touch {target}'
    option = "" if mount.writable else "-o ro "
    return [make, f"mount --bind {option}{shlex.quote(str(mount.source))} {target}"]


def _outer_first(mounts: Sequence[Mount]) -> list[Mount]:
    return sorted(mounts, key=lambda mount: mount.target.rstrip("/").count("/"))


def _environment(pid: int) -> dict[str, str]:
    text = Path(f"/proc/{pid}/environ").read_text(encoding="utf-8")
    return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)
