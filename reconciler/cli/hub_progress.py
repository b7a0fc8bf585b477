"""How far a long transfer is: a bar on a terminal, now and then a line elsewhere, on stderr."""

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Self

from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn
from rich.text import Text

from reconciler.apply.speed import Speed, told
from reconciler.cli.output import console, remark
from reconciler.status import Doing

_LINE_SECONDS = 5.0
_BAR_COLUMNS = 24


class Told:
    """Several threads may advance it. Nothing is printed for what takes no time.

    A line comes each `line_seconds`, also while nothing does.
    """

    def __init__(self, *, line_seconds: float = _LINE_SECONDS) -> None:
        self._out = console(sys.stderr)
        self._line_seconds = line_seconds
        self._task: TaskID | None = None
        self._lock = threading.Lock()
        self._doing, self._total, self._done = "", 0, 0
        self._speed = Speed()
        self._begun = self._next = time.monotonic()
        self._ended = threading.Event()
        self._lines = threading.Thread(target=self._print_lines, name="progress", daemon=True)
        self._bar = self._made_bar() if self._out.is_terminal else None

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        else:
            self._lines.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._bar is not None:
            self._bar.stop()
        else:
            self._lines.join()

    def waiting(self, doing: str) -> None:
        """For an answer that says how much there is to do."""
        self._step(doing, None, 0)

    def begin(self, doing: str, size_bytes: int, there: int = 0) -> None:
        """`there`: of these bytes, what an earlier try has left."""
        self._step(doing if size_bytes else "", size_bytes, there)

    def advance(self, size_bytes: int) -> None:
        with self._lock:
            self._done += size_bytes
            self._speed.note(self._done, self._total, time.monotonic())
            if self._bar is not None and self._task is not None:
                self._bar.update(self._task, completed=self._done)

    def _step(self, doing: str, size_bytes: int | None, there: int) -> None:
        with self._lock:
            now = time.monotonic()
            self._doing, self._total, self._done = doing, size_bytes or 0, there
            self._speed = Speed()
            self._speed.note(there, self._total, now)
            self._begun, self._next = now, now + self._line_seconds
            if self._bar is None:
                return
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = (
                self._bar.add_task(doing, total=size_bytes, completed=there) if doing else None
            )

    def _print_lines(self) -> None:
        while not self._ended.wait(max(0.0, self._next - time.monotonic())):
            with self._lock:
                if time.monotonic() < self._next:
                    continue  # another step has begun meanwhile
                self._next += self._line_seconds
                if self._doing:
                    self._out.print(f"{self._doing}: {self._amounts()}")

    def _amounts(self) -> str:
        """Without our lock: the bar asks with its own one held, which `advance` waits for."""
        now = time.monotonic()
        progress = self._speed.progress(Doing.FETCH, now)
        return f"no answer for {now - self._begun:.0f} s" if progress is None else told(progress)

    def _made_bar(self) -> Progress:
        return Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=_BAR_COLUMNS),
            _Amounts(self._amounts),
            console=self._out,
            transient=True,
        )


class _Amounts(ProgressColumn):
    """The same words as those of a line."""

    def __init__(self, said: Callable[[], str]) -> None:
        super().__init__()
        self._said = said

    def render(self, task: Task) -> Text:
        return Text(self._said())


@contextmanager
def saying_what_holds(held: str) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the command with a line. `held`: what it leaves, and how to go on."""
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    except _Terminated:
        remark(f"ended by SIGTERM: {held}")
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.raise_signal(signal.SIGTERM)  # as whoever sent it expects
    except KeyboardInterrupt:
        remark(f"interrupted: {held}")
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


class _Terminated(KeyboardInterrupt):
    """SIGTERM, which ends what goes on as Ctrl-C does."""


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise _Terminated
