"""The process that asks for GPUs, and dies if a library hangs or breaks.

    python -P -m reconciler.observe.devices.child DESCRIPTOR PARENT       an `Order` on stdin

What it finds goes to the descriptor, step by step: libraries print to stdout. Signals end it at
once, and so do its own alarm, and the end of whoever started it.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from reconciler.observe.devices.messages import decode_order, encode
from reconciler.plan.gpu_survey import Answer, Cause, Step, needless, next_step

_PR_SET_PDEATHSIG = 1
_STEP_SECONDS = 120
"""After that a step ends the process, where nobody else did before."""


def main(descriptor: int, parent: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it was gone before that
        return
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())  # whoever started us may have blocked them
    order = decode_order(sys.stdin.buffer.read())
    answers = list(order.answers)
    while (step := next_step(answers)) is not None:
        signal.alarm(_STEP_SECONDS)
        answers.append(_asked(step, answers, Path(order.root)))
        _tell(descriptor, answers[-1])
    os._exit(0)  # without the libraries' last acts: they may hang


def _asked(step: Step, answers: Sequence[Answer], root: Path) -> Answer:
    why = needless(step, answers)
    if why is not None:
        return Answer(step=step, reason=f"not asked: {why}", cause=Cause.NOT_ASKED)
    try:
        return _detector(step, root)()
    except Exception as exc:  # noqa: BLE001  the step's boundary: the others must be heard
        return Answer(step=step, reason=f"failed: {exc!r}", cause=Cause.OTHER)


def _detector(step: Step, root: Path) -> Callable[[], Answer]:
    """Imported when it is asked: a library that dies of its import is then known by its step."""
    match step:
        case Step.AMDSMI:
            from reconciler.observe.devices.amd import ask_amdsmi

            return lambda: ask_amdsmi(os.environ, root)
        case Step.SYSFS:
            from reconciler.observe.devices.amd_sysfs import ask_sysfs

            return lambda: ask_sysfs(root)
        case Step.NVML:
            from reconciler.observe.devices.nvidia import ask_nvml

            return ask_nvml
        case Step.TORCH:
            from reconciler.observe.devices.torch import ask_torch

            return ask_torch
        case Step.CPU:
            from reconciler.observe.devices.cpu import ask_cpu

            return ask_cpu


def _tell(descriptor: int, answer: Answer) -> None:
    rest = memoryview(encode(answer))
    while rest:
        rest = rest[os.write(descriptor, rest) :]


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
