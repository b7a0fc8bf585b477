"""Where agents that share a models folder say what they need of it, and when it was used last.

.use/AGENT.json    {"version": 1, "node": …, "data_dir": …, "budget_bytes": null,
                    "pins": [{"prefix": …, "digest": …, "files": {path: [model, …]}}]}
.use/used.json     {"version": 1, "used": {prefix: {digest: {path: seconds since 1970}}}}
.use/*.room        what downloads have still to write (`reservations`)
.use/.lock         held while one is written, and from the look at all of them to an eviction

An agent that is gone needs its files when it comes back: what it said counts for a week after it
was last alive.
"""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reconciler.atomic_file import make_folder
from reconciler.cache.inventory import LastUses
from reconciler.cache.layout import Layout, replace_json
from reconciler.cache.pins import Pins
from reconciler.file_lock import held

KEPT_SECONDS = 7 * 86400.0
ALIVE_SECONDS = 3600.0
"""An agent that runs says so at least this often."""
_VERSION = 1
_USED = "used.json"
_LOCK = ".lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """Whose pins: an agent is known by its node and its data folder."""

    node: str
    data_dir: str

    @property
    def key(self) -> str:
        text = f"{self.node}\0{self.data_dir}"
        return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:16]

    @property
    def where(self) -> str:
        """For people."""
        return f"on {self.node} in {self.data_dir}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What one agent said. `at`: when it was last alive, in seconds since 1970."""

    owner: Owner
    pins: Pins
    budget_bytes: int | None
    at: float


class PinBoard:
    """One owner's view of the board. Any thread may ask. Methods that write raise OSError."""

    def __init__(self, layout: Layout, owner: Owner) -> None:
        self._folder = layout.uses
        self.owner = owner
        self._own: Pins | None = None

    @contextmanager
    def locked(self, cancelled: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Nobody says anything new meanwhile."""
        make_folder(self._folder)
        with held(self._folder / _LOCK, cancelled=cancelled):
            yield

    def say(self, pins: Pins, budget_bytes: int | None) -> None:
        """From now on the owner needs these; what it needed until now was used until now.

        They count for this process, even where they cannot be written: the disk may be full.
        """
        self._own = pins
        with self.locked():
            before = self.said_by_owner()
            if before is not None:
                self._note_uses(before.pins, pins)
            data = {
                "version": _VERSION,
                "node": self.owner.node,
                "data_dir": self.owner.data_dir,
                "budget_bytes": budget_bytes,
                "pins": [
                    {
                        "prefix": prefix,
                        "digest": digest,
                        "files": {path: sorted(models) for path, models in sorted(files.items())},
                    }
                    for (prefix, digest), files in sorted(pins.by_revision.items())
                ],
            }
            replace_json(self._path, data)

    def alive(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.utime(self._path)

    def said(self) -> tuple[Said, ...]:
        """By every agent that is there, or was within a week."""
        oldest = time.time() - KEPT_SECONDS
        return tuple(each for each in self._all() if each.at >= oldest)

    def said_by_owner(self) -> Said | None:
        return _read(self._path)

    def pins(self) -> Pins:
        """What all agents need."""
        own, others = self.parted_pins()
        return own | others

    def parted_pins(self) -> tuple[Pins, Pins]:
        """What the owner needs, and what the others do: "chat on node-b in /data/b"."""
        own, others = self._own or Pins(), Pins()
        for each in self.said():
            if each.owner != self.owner:
                others |= each.pins.told_with(each.owner.where)
            elif self._own is None:
                own = each.pins
        return own, others

    def last_uses(self) -> LastUses:
        """What is pinned is used now; what a gone agent needed, it used while it was there."""
        uses = _read_uses(self._folder / _USED)
        oldest, now = time.time() - KEPT_SECONDS, time.time()
        for each in self._all():
            at = now if each.at >= oldest else each.at
            for (prefix, digest), files in each.pins.by_revision.items():
                for path in files:
                    key = (prefix, digest, path)
                    uses[key] = max(uses.get(key, 0.0), at)
        return uses

    def forget(self, revisions: Iterable[tuple[str, str]]) -> None:
        """These are gone. The board is locked. Never raises: to know them still costs nothing."""
        gone = set(revisions)
        uses = _read_uses(self._folder / _USED)
        with contextlib.suppress(OSError):
            self._write_uses({key: at for key, at in uses.items() if key[:2] not in gone})

    @property
    def _path(self) -> Path:
        return self._folder / f"{self.owner.key}.json"

    def _all(self) -> Iterator[Said]:
        for path in sorted(self._folder.glob("*.json")):
            if path.name != _USED and (said := _read(path)) is not None:
                yield said

    def _note_uses(self, before: Pins, now: Pins) -> None:
        if not before.misses(now):
            return
        uses = _read_uses(self._folder / _USED)
        at = round(time.time(), 3)
        for (prefix, digest), files in before.by_revision.items():
            still = now.by_revision.get((prefix, digest), {})
            uses |= {(prefix, digest, path): at for path in files if path not in still}
        self._write_uses(uses)

    def _write_uses(self, uses: LastUses) -> None:
        nested: dict[str, dict[str, dict[str, float]]] = {}
        for (prefix, digest, path), at in sorted(uses.items()):
            nested.setdefault(prefix, {}).setdefault(digest, {})[path] = at
        replace_json(self._folder / _USED, {"version": _VERSION, "used": nested})


def _read(path: Path) -> Said | None:
    try:
        data: dict[str, Any] = json.loads(path.read_bytes())
        if data["version"] != _VERSION:
            return None
        pins = {
            (str(each["prefix"]), str(each["digest"])): {
                str(name): frozenset(map(str, models)) for name, models in each["files"].items()
            }
            for each in data["pins"]
        }
        budget = data["budget_bytes"]
        return Said(
            owner=Owner(node=str(data["node"]), data_dir=str(data["data_dir"])),
            pins=Pins(pins),
            budget_bytes=None if budget is None else int(budget),
            at=path.stat().st_mtime,
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _read_uses(path: Path) -> dict[tuple[str, str, str], float]:
    try:
        data: dict[str, Any] = json.loads(path.read_bytes())
        if data["version"] != _VERSION:
            return {}
        return {
            (str(prefix), str(digest), str(name)): float(at)
            for prefix, digests in data["used"].items()
            for digest, files in digests.items()
            for name, at in files.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
