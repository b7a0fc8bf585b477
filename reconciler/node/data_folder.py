"""The agent's data folder: its version, its one owner, the node's name, where the agent answers.

version      "1"
lock         flock, held while an agent runs
gpus.json    the number of each GPU (`apply/gpu_numbers`)
node.json    the node's name; another name needs `--rename-node OLD` (R2)
agent.json   url, pid and settings of the running agent, for commands without `--server`
"""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from reconciler.errors import Rejected
from reconciler.file_lock import try_lock
from reconciler.plan.ids import NodeName

VERSION = 1
ALL_NODES = "all"
"""In a manifest it means every node, so no node may have it for a name (design §4)."""


class DataFolder:
    """An owned data folder, as a context manager; the lock goes with the process in any case."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    def __enter__(self) -> Self:
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o750)
            self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        except OSError as exc:
            raise Rejected(
                f"cannot use data folder {self.path}: {exc.strerror}; "
                "name another one with --data-dir"
            ) from exc
        if not try_lock(self._lock):
            raise Rejected(
                f"cannot use data folder {self.path}: another agent{_owner(self.path)} owns it; "
                "stop it, or give this one its own --data-dir"
            )
        self._check_version()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        (self.path / "agent.json").unlink(missing_ok=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def settle_name(
        self, asked: NodeName | None, *, host: str, rename_from: str | None
    ) -> NodeName:
        """The node's name: the one asked for, else the remembered one, else the host's.

        Another name than the remembered one is refused, because every model of the old name
        would stop: `rename_from` must name the old one. `remember_name` makes it last.
        """
        remembered = read_json(self.path / "node.json").get("node")
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
        if read_json(self.path / "node.json").get("node") != name:
            write_json(self.path / "node.json", {"node": name})

    def announce(self, url: str, settings: Mapping[str, object]) -> None:
        """Record where this agent answers, and what it was told, for the command line."""
        told = {"url": url, "pid": os.getpid(), "settings": dict(settings)}
        write_json(self.path / "agent.json", told)

    def _check_version(self) -> None:
        path = self.path / "version"
        if not path.exists():
            write_atomically(path, f"{VERSION}\n")
            return
        text = path.read_text(encoding="utf-8").strip()
        if text != str(VERSION):
            raise Rejected(
                f"cannot use data folder {self.path}: it has version {text!r}, "
                f"this release reads version {VERSION}"
            )


def agent_url(data_dir: Path) -> str | None:
    """Where the agent of this data folder answers, if one was announced."""
    url = read_json(data_dir / "agent.json").get("url")
    return url if isinstance(url, str) else None


def read_json(path: Path) -> dict[str, object]:
    """The object in a small JSON file; empty if it is missing or torn."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def write_json(path: Path, value: dict[str, object]) -> None:
    write_atomically(path, json.dumps(value) + "\n")


def write_atomically(path: Path, text: str) -> None:
    """Replace a small file so that a reader sees the old or the new text, after a crash too."""
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _owner(path: Path) -> str:
    pid = read_json(path / "agent.json").get("pid")
    return f" (pid {pid})" if isinstance(pid, int) else ""
