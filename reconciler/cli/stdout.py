"""stdout that remembers why it could not be written to: a full disk is no fault of the command."""

import errno
import io
import os
import sys
from typing import TYPE_CHECKING, TextIO, cast

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_STDOUT = 1


class WatchedStdout:
    """Takes the place of `sys.stdout`. An OSError alone does not tell which file it is about."""

    def __init__(self) -> None:
        self._raw: _Raw | None = None
        self._closed: OSError | None = None
        before = cast("TextIO | None", sys.stdout)  # None: it was closed before we began
        if before is None:
            self._closed = OSError(errno.EBADF, "it is closed")
            sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for all our life
        elif isinstance(before, io.TextIOWrapper):
            self._raw = _Raw(_STDOUT, "w", closefd=False)
            sys.stdout = io.TextIOWrapper(
                io.BufferedWriter(self._raw),
                encoding=before.encoding,
                errors=before.errors,
                line_buffering=before.line_buffering,
                write_through=before.write_through,
            )

    def failure(self) -> OSError | None:
        """Write what is left; why something was lost. Then the rest is dropped, in peace."""
        if self._raw is None:
            return self._closed
        try:
            sys.stdout.flush()
        except OSError as exc:
            self._raw.failure = exc
        if self._raw.failure is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), _STDOUT)
        return self._raw.failure


class _Raw(io.FileIO):
    failure: OSError | None = None

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except OSError as exc:
            self.failure = exc
            raise
