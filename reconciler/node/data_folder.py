"""The agent's data folder: its version, its one owner, the node's name, where the agent answers.

version      "1"
lock         flock, held while an agent runs
rails.json   what is suspended by command, and confirmed (`apply/rail_notes`)
gpus.json    the number of each GPU (`apply/gpu_numbers`)
node.json    the node's name; another name needs `--rename-node OLD` (R2)
agent.json   url, pid and settings of the running agent, for commands without `--server`
"""

import contextlib
import errno
import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import structlog

from reconciler.atomic_file import make_folder, replace_file
from reconciler.errors import Rejected
from reconciler.file_lock import is_at, try_lock
from reconciler.plan.ids import NodeName

_log = structlog.get_logger("xgen.node")

VERSION = 1
_FOLDER_MODE = 0o750
_LOCK, _NODE, _AGENT = "lock", "node.json", "agent.json"
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_NEEDED = "what changes now would not be known to the next agent"
_UNTOUCHED = "put the old one back, or end this agent; until then nothing is started or written"
ALL_NODES = "all"
"""In a manifest it means every node, so no node may have it for a name (design §4)."""


class DataFolder:
    """An owned data folder, as a context manager; the lock goes with the process in any case."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._locks: list[int] = []  # of the folder, and before it of those that it replaced
        self._written: dict[str, bytes] = {}
        self._holding = threading.Lock()

    def __enter__(self) -> Self:
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=_FOLDER_MODE)
            lock = self._open_lock()
        except OSError as exc:
            raise Rejected(
                f"cannot use data folder {self.path}: {exc.strerror}; "
                "name another one with --data-dir"
            ) from exc
        if not try_lock(lock):
            os.close(lock)
            raise Rejected(
                f"cannot use data folder {self.path}: another agent{_owner(self.path)} owns it; "
                "stop it, or give this one its own --data-dir"
            )
        self._locks.append(lock)
        if (problem := self._other_version()) is not None:
            self._close_locks()
            raise Rejected(f"cannot use data folder {self.path}: it {problem}")
        self._keep("version", f"{VERSION}\n".encode())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if read_json(self.path / _AGENT).get("pid") == os.getpid():
            (self.path / _AGENT).unlink(missing_ok=True)
        self._close_locks()

    def settle_name(
        self, asked: NodeName | None, *, host: str, rename_from: str | None
    ) -> NodeName:
        """The node's name: the one asked for, else the remembered one, else the host's.

        Another name than the remembered one is refused, because every model of the old name
        would stop: `rename_from` must name the old one. `remember_name` makes it last.
        """
        remembered = read_json(self.path / _NODE).get("node")
        name = asked or (NodeName(remembered) if isinstance(remembered, str) else NodeName(host))
        if isinstance(remembered, str) and remembered not in (name, rename_from):
            raise Rejected(
                f"cannot run as node {name}: {self.path} belongs to node {remembered}. "
                f"Nothing was stopped. If the node was renamed, add --rename-node {remembered}"
            )
        if name == ALL_NODES or not name.strip():
            raise Rejected(f"cannot run as node {name!r}: that is no node's name; give --node NAME")
        return name

    def remember_name(self, name: NodeName) -> None:
        """From now on this folder is that node's. Said once an agent really runs here."""
        self._keep(_NODE, _json({"node": name}))

    def announce(self, url: str, settings: Mapping[str, object]) -> None:
        """Record where this agent answers, and what it was told, for the command line. Where the
        disk is full, `hold` does so once it is not: what runs needs an agent meanwhile."""
        told = {"url": url, "pid": os.getpid(), "settings": dict(settings)}
        try:
            self._keep(_AGENT, _json(told))
        except OSError as exc:
            if exc.errno not in _NO_ROOM:
                raise
            with contextlib.suppress(OSError):  # it tells of an agent before this one
                (self.path / _AGENT).unlink()
            _log.error("the agent's address is not on disk", url=url, error=str(exc))

    def hold(self) -> str | None:
        """Let the folder be this agent's still, while it runs: what somebody has removed of the
        files above is written anew, also where all of the folder has gone.

        Returns why it is not, as a sentence; None: it is. Any thread may ask; some calls to the
        kernel where nothing was done to it.
        """
        with self._holding:
            try:
                return self._hold()
            except OSError as exc:
                cause = (exc.strerror or str(exc)).lower()
                return f"cannot use data folder {self.path}: {cause}; {_NEEDED}"

    def _hold(self) -> str | None:
        was_ours = is_at(self.path / _LOCK, self._locks[-1])
        if not was_ours:
            if (problem := self._take_again()) is not None:
                return f"data folder {self.path} was replaced: {problem}; {_UNTOUCHED}"
            _log.warning("the data folder was emptied or replaced", path=str(self.path))
        if not os.access(self.path, os.W_OK | os.X_OK):
            return f"cannot write into data folder {self.path}: make it writable; {_NEEDED}"
        for name, content in self._written.items():
            if not was_ours or not (self.path / name).exists():
                replace_file(self.path / name, content)
        return None

    def _take_again(self) -> str | None:
        """What is at its path now, unless it is somebody else's. The lock of the folder before is
        kept: nobody is to go on with its records while this agent lives."""
        make_folder(self.path, mode=_FOLDER_MODE)
        if (problem := self._other_version()) is not None:
            return f"what is there {problem}"
        node, ours = read_json(self.path / _NODE).get("node"), self._written.get(_NODE)
        if node is not None and ours is not None and _json({"node": node}) != ours:
            return f"what is there belongs to node {node}"
        lock = self._open_lock()
        if not try_lock(lock):
            os.close(lock)
            return f"another agent{_owner(self.path)} owns what is there"
        self._locks.append(lock)
        return None

    def _keep(self, name: str, content: bytes) -> None:
        path = self.path / name
        with self._holding:
            self._written[name] = content
            if not path.exists() or path.read_bytes() != content:
                replace_file(path, content)

    def _open_lock(self) -> int:
        return os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)

    def _close_locks(self) -> None:
        for lock in self._locks:
            os.close(lock)
        self._locks.clear()

    def _other_version(self) -> str | None:
        """As a clause; None: it has ours, or none yet."""
        try:
            text = (self.path / "version").read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return None
        if text == str(VERSION):
            return None
        return f"has version {text!r}, this release reads version {VERSION}"


def agent_url(data_dir: Path) -> str | None:
    """Where the agent of this data folder answers, if one was announced."""
    url = read_json(data_dir / _AGENT).get("url")
    return url if isinstance(url, str) else None


def read_json(path: Path) -> dict[str, object]:
    """The object in a small JSON file; empty if it is missing or torn."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _json(value: dict[str, object]) -> bytes:
    return json.dumps(value).encode() + b"\n"


def _owner(path: Path) -> str:
    pid = read_json(path / _AGENT).get("pid")
    return f" (pid {pid})" if isinstance(pid, int) else ""
