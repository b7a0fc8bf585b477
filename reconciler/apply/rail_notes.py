"""What operators have ordered by command, and which revisions wait for them, kept on disk for the
next agent: a suspension that a restart forgets is none (gpustack#4207).

One line: the sha256 of the JSON, a space, the JSON. Where it is damaged nobody knows what was
suspended; then the whole node counts as suspended, until somebody lifts that.
"""

import hashlib
import json
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reconciler.atomic_file import cause_and_cure
from reconciler.errors import Transient
from reconciler.own_files import FilesKept, OwnFile, OwnFiles
from reconciler.plan.desired import WaitingRevision
from reconciler.plan.ids import ModelName
from reconciler.plan.stop_limit import NO_STOP_LIMIT, stop_limit_of
from reconciler.plan.suspension import Suspension

_NAME = "rails.json"
_VERSION = 1
_AGENT = "xgen-model"


@dataclass(frozen=True, slots=True, kw_only=True)
class RailNotes:
    """`suspensions`: by command, at most one of each model and one of the node. `confirmed`: the
    revision that may stop what it stops. `waiting`: those that were not, since the last one that
    was taken up, the newest last. `hurried`: the revision that does not wait for a window."""

    suspensions: tuple[Suspension, ...] = ()
    confirmed: str | None = None
    waiting: tuple[WaitingRevision, ...] = ()
    hurried: str | None = None


class RailFile:
    """The notes in the data folder. One process writes at a time, and any thread of it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _NAME
        self._busy = threading.Lock()
        self._own = OwnFiles("a restart would forget what is suspended and confirmed")

    def load(self, *, now: str) -> tuple[RailNotes, str | None]:
        """The notes, and what is wrong with the file, as a sentence. Never raises. `now`: RFC 3339,
        UTC."""
        try:
            file = OwnFile.read(self._path)
            notes = _opened(file.content)
        except FileNotFoundError:
            return RailNotes(), None
        except OSError as exc:
            return self._unknown(cause_and_cure(exc, self._path.parent), now)
        except (ValueError, KeyError, TypeError) as exc:
            return self._unknown(f"it is damaged ({exc})", now)
        self._own.take(file)
        return notes, None

    def _unknown(self, why: str, now: str) -> tuple[RailNotes, str]:
        problem = f"cannot tell from {self._path} what was suspended: {why}"
        because = f"{problem}; `xgen-model resume` lifts this"
        held = Suspension(by=_AGENT, reason=because, since=now)
        return RailNotes(suspensions=(held,)), problem

    def save(self, notes: RailNotes) -> None:
        """Whole, and on the disk when it returns. Raises Transient."""
        body = json.dumps(_written(notes)).encode()
        seal = hashlib.sha256(body).hexdigest().encode()
        try:
            with self._busy:
                self._own.write(self._path, seal + b" " + body + b"\n")
        except OSError as exc:
            cause = cause_and_cure(exc, self._path.parent)
            raise Transient(f"cannot write {self._path}: {cause}") from exc

    def keep(self) -> FilesKept:
        """Write it anew if somebody removed or changed it."""
        with self._busy:
            return self._own.keep()


def _written(notes: RailNotes) -> dict[str, Any]:
    return {
        "version": _VERSION,
        "suspensions": [
            {
                "model": each.model,
                "by": each.by,
                "reason": each.reason,
                "since": each.since,
                "until": each.until,
            }
            for each in notes.suspensions
        ],
        "confirmed": notes.confirmed,
        "waiting": [
            {
                "revision": each.revision,
                "stops": list(each.stops),
                "running": each.running,
                "limit": str(each.limit),
            }
            for each in notes.waiting
        ],
        "hurried": notes.hurried,
    }


def _opened(content: bytes) -> RailNotes:
    """Raises ValueError, KeyError or TypeError where it is not what was written."""
    seal, _, body = content.rstrip(b"\n").partition(b" ")
    if hashlib.sha256(body).hexdigest().encode() != seal:
        raise ValueError("its checksum is wrong")
    told = json.loads(body)
    if told["version"] != _VERSION:
        raise ValueError(f"it has version {told['version']}")
    return RailNotes(
        suspensions=tuple(
            Suspension(
                model=ModelName(each["model"]) if each["model"] is not None else None,
                by=each["by"],
                reason=each["reason"],
                since=each["since"],
                until=each["until"],
            )
            for each in told["suspensions"]
        ),
        confirmed=told["confirmed"],
        waiting=tuple(
            WaitingRevision(
                revision=each["revision"],
                stops=tuple(map(ModelName, each["stops"])),
                running=each["running"],
                limit=stop_limit_of(each["limit"]) or NO_STOP_LIMIT,
            )
            for each in told["waiting"]
        ),
        hurried=told["hurried"],
    )
