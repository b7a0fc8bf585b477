"""How far a long transfer is: a bar on a terminal, now and then a line elsewhere, on stderr."""

import sys
import threading
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from reconciler.cli.checks.finding import size
from reconciler.cli.output import console

_LINE_SECONDS = 5.0


class Told:
    """Several threads may advance it. Nothing is printed for what takes no time."""

    def __init__(self) -> None:
        out = console(sys.stderr)
        self._bar = _bar(out) if out.is_terminal else None
        self._out = out
        self._task: TaskID | None = None
        self._lock = threading.Lock()
        self._doing, self._total, self._done, self._there = "", 0, 0, 0
        self._begun = self._told = time.monotonic()

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, doing: str, size_bytes: int, there: int = 0) -> None:
        """`there`: of these bytes, what an earlier try has left."""
        if size_bytes == 0:
            return
        with self._lock:
            self._doing, self._total = doing, size_bytes
            self._done = self._there = there
            self._begun = self._told = time.monotonic()
            if self._bar is not None:
                if self._task is not None:
                    self._bar.remove_task(self._task)
                self._task = self._bar.add_task(doing, total=size_bytes, completed=there)

    def advance(self, size_bytes: int) -> None:
        with self._lock:
            self._done += size_bytes
            if self._bar is not None and self._task is not None:
                self._bar.update(self._task, completed=self._done)
                return
            now = time.monotonic()
            if now - self._told >= _LINE_SECONDS:
                self._told = now
                self._out.print(self._line(now - self._begun))

    def _line(self, seconds: float) -> str:
        rate = max(0, self._done - self._there) / seconds
        left = f", {(self._total - self._done) / rate:.0f} s left" if rate else ""
        return (
            f"{self._doing}: {size(self._done)} of {size(self._total)}, {size(int(rate))}/s{left}"
        )


def _bar(out: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=out,
        transient=True,
    )
