"""The last set of files that was applied, kept on disk for a start without its source.

One file, one JSON object a line: a header, then each manifest file with its own digest, so that a
damaged line costs that file alone. Replaced by rename: a crash leaves the old set or the new one.
What somebody removes or changes while the agent runs is written anew.
"""

import base64
import binascii
import hashlib
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from reconciler.errors import Transient
from reconciler.own_files import FilesKept, OwnFile, OwnFiles, look_at

_NAME = "last-good.jsonl"
_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class LastGoodSet:
    """What was kept. `revision` None: nothing was, or the header is lost.

    `error`: what was found damaged or unreadable; `files` then holds what is good.
    """

    files: Mapping[str, bytes] = field(default_factory=dict)
    revision: str | None = None
    error: str | None = None


class LastGood:
    """The set in `folder`. One process writes at a time (the data folder is locked), and any thread
    of it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _NAME
        self._busy = threading.Lock()
        self._own = OwnFiles("a restart would know no manifest if the source is away or bad")

    def load(self) -> LastGoodSet:
        """What the last `save` kept. Never raises."""
        try:
            look = look_at(self._path)
            content = self._path.read_bytes()
        except FileNotFoundError:
            return LastGoodSet()
        except OSError as exc:
            return LastGoodSet(error=f"cannot read {self._path}: {exc.strerror}")
        kept = _parse(content.splitlines(), str(self._path))
        if kept.error is None:
            self._own.take(OwnFile(path=self._path, content=content, look=look))
        return kept

    def save(self, files: Mapping[str, bytes], revision: str) -> None:
        """Replace the set by this one, on disk when this returns. Raises Transient."""
        header = {"version": _VERSION, "revision": revision, "files": sorted(files)}
        lines = [_sealed(header), *(_sealed(_entry(name, files[name])) for name in sorted(files))]
        try:
            with self._busy:
                self._own.write(self._path, b"\n".join(lines) + b"\n")
        except OSError as exc:
            raise Transient(f"cannot save the manifest to {self._path}: {exc.strerror}") from exc

    def keep(self) -> FilesKept:
        """Write it anew if somebody removed or changed it."""
        with self._busy:
            return self._own.keep()


def _entry(name: str, content: bytes) -> dict[str, object]:
    try:
        return {"name": name, "text": content.decode()}
    except UnicodeDecodeError:
        return {"name": name, "base64": base64.b64encode(content).decode()}


def _sealed(value: dict[str, object]) -> bytes:
    """One line of ASCII: the sha256 of the JSON, a space, the JSON."""
    body = json.dumps(value).encode()
    return hashlib.sha256(body).hexdigest().encode() + b" " + body


def _opened(line: bytes) -> dict[str, Any] | None:
    seal, _, body = line.partition(b" ")
    if hashlib.sha256(body).hexdigest().encode() != seal:
        return None
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _content(entry: dict[str, Any]) -> bytes | None:
    try:
        if "text" in entry:
            return str(entry["text"]).encode()
        return base64.b64decode(entry["base64"], validate=True)
    except (KeyError, TypeError, UnicodeEncodeError, binascii.Error):
        return None


def _parse(lines: list[bytes], path: str) -> LastGoodSet:
    header = _opened(lines[0]) if lines else None
    files: dict[str, bytes] = {}
    damaged = 0
    for line in lines[1:] if header is not None else lines:
        entry = _opened(line)
        content = None if entry is None or "name" not in entry else _content(entry)
        if entry is None or content is None:
            damaged += 1
        else:
            files[str(entry["name"])] = content
    error: str | None = None
    if header is not None and header.get("version", _VERSION) != _VERSION:
        return LastGoodSet(error=f"cannot read {path}: it has version {header['version']}")
    if header is None or not _is_header(header):
        error = f"cannot trust all of {path}: its first line is damaged"
        return LastGoodSet(files=files, error=error)
    lost = sorted(set(map(str, header["files"])) - files.keys())
    if lost or damaged:
        error = f"cannot trust all of {path}: damaged or cut off: {', '.join(lost) or 'a line'}"
    return LastGoodSet(files=files, revision=str(header["revision"]), error=error)


def _is_header(value: dict[str, Any]) -> bool:
    return isinstance(value.get("files"), list) and isinstance(value.get("revision"), str)
