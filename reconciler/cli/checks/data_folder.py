"""The data folder: whose it is, who holds it, which node it remembers."""

import os
import pwd
from collections.abc import Iterator
from pathlib import Path

from reconciler.apply.records import Records
from reconciler.cli.checks.finding import Finding, fail, ok, skip, warn
from reconciler.errors import Rejected
from reconciler.node.data_folder import VERSION, read_json

_OTHER = "or name another with --data-dir"


def data_folder_findings(folder: Path, asked_node: str | None, host: str) -> Iterator[Finding]:
    usable = _folder(folder)
    yield usable
    yield _lock(folder)
    yield _node(folder, asked_node, host)
    left = _left_behind(folder)
    if left is not None:
        yield left


def lock_holder(folder: Path) -> int | None:
    """The pid that holds the folder; looked up, since trying the lock could be in somebody's way.

    0: somebody whose pid is not known here.
    """
    try:
        status = os.stat(folder / "lock")
        locks = Path("/proc/locks").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    device = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in locks:
        fields = line.split()
        if "FLOCK" in fields and device in fields and "->" not in fields:
            return max(int(fields[4]), 0)
    return None


def _folder(folder: Path) -> Finding:
    try:
        status = folder.stat()
    except FileNotFoundError:
        above = next(path for path in folder.parents if os.path.exists(path))
        if os.access(above, os.W_OK | os.X_OK):
            return ok("data folder", f"{folder} is not there yet; the first run makes it")
        return fail("data folder", f"cannot make {folder}: {above} is read-only", _chown(above))
    except OSError as exc:
        return fail("data folder", f"cannot read {folder}: {exc.strerror}", _chown(folder))
    owner = _user(status.st_uid)
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        said = f"{folder} belongs to {owner}, and {_user(os.geteuid())} cannot write there"
        return fail("data folder", said, f"run as {owner}, {_OTHER}")
    try:
        version = (folder / "version").read_text(encoding="utf-8").strip()
    except OSError:
        version = None
    if version not in (None, str(VERSION)):
        said = f"{folder} has version {version}; this release reads {VERSION}"
        return fail("data folder", said, f"use the release that made it, {_OTHER}")
    return ok("data folder", f"{folder}, owner {owner}, version {version or 'none yet'}")


def _lock(folder: Path) -> Finding:
    holder = lock_holder(folder)
    if holder is None:
        return ok("lock", "nobody holds the data folder")
    if holder == 0:
        return ok("lock", "an agent holds the data folder, in another pid namespace")
    return ok("lock", f"pid {holder} holds the data folder ({_command(holder)})")


def _node(folder: Path, asked: str | None, host: str) -> Finding:
    remembered = read_json(folder / "node.json").get("node")
    if not isinstance(remembered, str):
        return ok("node", f"{asked or host}" + ("" if asked else ", the host's name"))
    if asked in (None, remembered):
        return ok("node", f"{remembered}, as the data folder remembers")
    return fail(
        "node",
        f"asked for is {asked}, the data folder belongs to {remembered}: the agent would refuse",
        f"drop --node, or run once with --rename-node {remembered} if it was renamed",
    )


def _left_behind(folder: Path) -> Finding | None:
    """Backends that outlived their agent."""
    if lock_holder(folder) is not None:
        return None
    spawns = Records(folder / "spawns")
    try:
        spawns.names()
    except Rejected as exc:
        said, _, cure = str(exc).rpartition("; ")
        return fail("left behind", said, f"{cure}: no agent starts on it until then")
    found, problems = spawns.read()
    records = [record for record in found if not record.is_copy_in(spawns.identity())]
    alive = [r for r in records if r.pid is not None and Path(f"/proc/{r.pid}").exists()]
    if problems:
        return warn(
            "left behind",
            "; ".join(each.why for each in problems.values()),
            "look at those files before you remove any",
        )
    if alive:
        listed = ", ".join(f"{record.model} (pid {record.pid})" for record in alive)
        return warn(
            "left behind",
            f"an agent that is gone left {listed}",
            "start the agent: it goes on with those that the manifest still wants",
        )
    return skip("left behind", "nothing of an earlier agent runs") if records else None


def _command(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return "it ended just now"
    return " ".join(word.decode(errors="replace") for word in words[:4]).strip() or "no name"


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"


def _chown(path: Path) -> str:
    return f"give {path} to {_user(os.geteuid())}, {_OTHER}"
