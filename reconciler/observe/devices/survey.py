"""The agent's side of the child that asks for GPUs: its start, its time, what it leaves unsaid.

A step that hangs or kills the child is known by its name; another child asks the steps after it.
"""

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from pathlib import Path

from reconciler.masking import without_secrets
from reconciler.observe.devices.cards import with_cards
from reconciler.observe.devices.messages import Order, decode_answers, encode
from reconciler.plan.gpu_survey import Answer, Cause, Step, next_step

STEP_SECONDS = 30.0
"""For one step: without its persistence daemon, a driver wakes eight GPUs one after another."""
_END_SECONDS = 2.0


def survey(*, step_seconds: float = STEP_SECONDS, root: Path = Path("/")) -> tuple[Answer, ...]:
    """The answer of every step, in their order. Blocks; whatever a library does is an answer.

    `root`: where /sys and /dev are.
    """
    answers: list[Answer] = []
    while (step := next_step(answers)) is not None:
        order = Order(answers=tuple(answers), root=os.fspath(root))
        try:
            child = _Child(order)
        except OSError as exc:
            reason = f"not asked: cannot start a process: {exc.strerror}"
            answers.append(Answer(step=step, reason=reason, cause=Cause.NOT_ASKED))
            continue
        with contextlib.closing(child):
            answers.extend(child.listen(step_seconds))
        unanswered = next_step(answers)
        if unanswered is not None:
            answers.append(child.failure(unanswered, step_seconds))
    return with_cards(answers, root)


class _Child:
    """One run of the child, in a group of its own."""

    def __init__(self, order: Order) -> None:
        self._descriptor, its = os.pipe()
        self._hung = False
        numbers = (str(its), str(os.getpid()))
        argv = [sys.executable, "-P", "-m", "reconciler.observe.devices.child", *numbers]
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,  # libraries print there
                stderr=subprocess.DEVNULL,
                pass_fds=[its],
                env=without_secrets(os.environ),
                process_group=0,
            )
        except OSError:
            os.close(self._descriptor)
            raise
        finally:
            os.close(its)
        assert self._process.stdin is not None
        with contextlib.suppress(OSError), self._process.stdin as stdin:
            stdin.write(encode(order))  # it is gone already: it will answer nothing

    def listen(self, step_seconds: float) -> list[Answer]:
        """All that it says until it ends, or until one step takes longer than that."""
        buffer = b""
        deadline = time.monotonic() + step_seconds
        with selectors.DefaultSelector() as selector:
            selector.register(self._descriptor, selectors.EVENT_READ)
            while True:
                if not selector.select(max(deadline - time.monotonic(), 0)):
                    self._hung = True
                    break
                chunk = os.read(self._descriptor, 65536)
                if not chunk:
                    break
                buffer += chunk
                deadline = time.monotonic() + step_seconds
        return decode_answers(buffer.split(b"\n")[:-1])

    def close(self) -> None:
        """Nothing of it is left, unless the kernel itself does not let it go."""
        os.close(self._descriptor)
        if self._hung:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_SECONDS)

    def failure(self, step: Step, step_seconds: float) -> Answer:
        """What became of the step that it did not answer."""
        code = self._process.returncode
        if self._hung:
            reason = f"did not answer within {step_seconds:g} s"
            if code is None:
                reason += f"; its process {self._process.pid} hangs in the driver, and does not die"
            return Answer(step=step, reason=reason, cause=Cause.HUNG)
        how = _signal_name(-code) if code is not None and code < 0 else f"exit code {code}"
        return Answer(step=step, reason=f"ended its process: {how}", cause=Cause.CRASHED)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
