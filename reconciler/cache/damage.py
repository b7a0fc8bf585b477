"""Which files of the hub were damaged when they were fetched, so that they are not fetched again.

Beside the records of a prefix, `.damaged`, which outlasts the agent:
{"version": 1, "files": [{"asked": WHAT FOR, "said": "cannot fetch …", "object": {…}}]}
A file counts no more once the hub has another one in its place.
"""

import json
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from reconciler.cache.layout import Layout, replace_json
from reconciler.cache.record import RecordedObject
from reconciler.plan.desired import ModelSpec
from reconciler.plan.spec_hash import spec_hash

_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Note:
    """`asked`: the spec and the hub that it was fetched for and from."""

    asked: str
    said: str
    item: RecordedObject


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """What is known of one prefix, for one spec. `forgiven`: the specs to be tried anew."""

    path: Path
    asked: str
    forgiven: set[str]

    def begin(self) -> None:
        """A fetch begins; the prefix's lock is held, as for `note` and `forget`. Raises OSError."""
        if self.asked in self.forgiven:
            self._keep(lambda note: note.asked != self.asked)
            self.forgiven.discard(self.asked)

    def said_of(self, items: Collection[RecordedObject]) -> str | None:
        """What was said of the first damaged one of these; None: a fetch may bring them."""
        if self.asked in self.forgiven:
            return None
        found = (note for note in _load(self.path) if note.asked == self.asked)
        return next((note.said for note in found if note.item in items), None)

    def note(self, item: RecordedObject, said: str) -> None:
        """It was fetched, and is damaged. Raises OSError."""
        note = _Note(asked=self.asked, said=said, item=item)
        _save(
            self.path,
            [each for each in _load(self.path) if not self._is_of(each, item)] + [note],
        )

    def forget(self, item: RecordedObject) -> None:
        """It came, and is right: whoever asks for that path may try again. Raises OSError."""
        self._keep(lambda note: note.item.path != item.path)

    def _is_of(self, note: _Note, item: RecordedObject) -> bool:
        return (note.asked, note.item.path) == (self.asked, item.path)

    def _keep(self, holds: Callable[[_Note], bool]) -> None:
        notes = _load(self.path)
        kept = [note for note in notes if holds(note)]
        if kept != notes:
            _save(self.path, kept)


class Damages:
    """Of one models folder. `hub`: where its files come from; another one may have good ones."""

    def __init__(self, layout: Layout, hub: str) -> None:
        self._layout = layout
        self._hub = hub
        self._forgiven: set[str] = set()

    def of(self, prefix: str, spec: ModelSpec) -> Damage:
        return Damage(
            path=self._layout.damaged(prefix), asked=self._asked(spec), forgiven=self._forgiven
        )

    def forgive(self, spec: ModelSpec) -> None:
        """Let the next fetch for a spec try what was damaged. Never blocks."""
        self._forgiven.add(self._asked(spec))

    def _asked(self, spec: ModelSpec) -> str:
        """With the hash, since a changed manifest is another attempt (R7)."""
        return f"{spec_hash(spec)}@{spec.digest or ''} from {self._hub}"


def _load(path: Path) -> list[_Note]:
    """Empty where there are none, or none that can be understood."""
    try:
        data: dict[str, Any] = json.loads(path.read_bytes())
        if data["version"] != _VERSION:
            return []
        return [
            _Note(
                asked=str(each["asked"]),
                said=str(each["said"]),
                item=RecordedObject(**each["object"]),
            )
            for each in data["files"]
        ]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def _save(path: Path, notes: Collection[_Note]) -> None:
    files = [
        {"asked": note.asked, "said": note.said, "object": asdict(note.item)} for note in notes
    ]
    replace_json(path, {"version": _VERSION, "files": files})
