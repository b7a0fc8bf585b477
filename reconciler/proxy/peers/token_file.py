"""The secret by which the agents of a cluster know each other: a file that may change."""

import os
from collections.abc import Callable
from pathlib import Path

import structlog

from reconciler.errors import Rejected

_log = structlog.get_logger("xgen.peers")

_LOOK_SECONDS = 1.0
_Stamp = tuple[int, int, int]


class TokenFile:
    """Cheap to ask for each request: the file is looked at once a second at most.

    While it cannot be read, is empty or no token, the one before stays in force.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float]) -> None:
        """`clock`: monotonic seconds. Raises Rejected where there is no token to begin with."""
        self._path = path
        self._clock = clock
        self._looked_at = clock()
        self._stamp = _stamp(path)
        self._token = _read(path)
        self._problem: str | None = None

    def problem(self) -> str | None:
        """Why the file as it is by now is not in force; None: it is."""
        self.current()
        return self._problem

    def current(self) -> str:
        now = self._clock()
        if now - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = now
            self._look()
        return self._token

    def _look(self) -> None:
        try:
            stamp = _stamp(self._path)
            token = self._token if stamp == self._stamp else _read(self._path)
        except Rejected as exc:
            if str(exc) != self._problem:
                _log.warning("the cluster token before stays in force", reason=str(exc))
            self._problem = str(exc)
            return
        if token != self._token:
            _log.info("the cluster token has changed", file=str(self._path))
        self._stamp, self._token, self._problem = stamp, token, None


def _stamp(path: Path) -> _Stamp:
    try:
        seen = os.stat(path)
    except OSError as exc:
        raise _unusable(path, exc.strerror or str(exc)) from exc
    return seen.st_ino, seen.st_mtime_ns, seen.st_size


def _read(path: Path) -> str:
    try:
        token = path.read_bytes().strip()
    except OSError as exc:
        raise _unusable(path, exc.strerror or str(exc)) from exc
    if not token:
        raise _unusable(path, "it is empty")
    if len(token.split()) > 1:
        raise _unusable(path, "it holds more than one word")
    if not all(0x21 <= byte <= 0x7E for byte in token):
        raise _unusable(path, "it holds characters other than printable ASCII")
    return token.decode("ascii")


def _unusable(path: Path, why: str) -> Rejected:
    return Rejected(
        f"cannot use the cluster token in {path}: {why}; write one secret into it, the same on "
        "every node, or leave --cluster-token-file out"
    )
