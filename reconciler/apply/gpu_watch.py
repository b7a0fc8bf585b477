"""Asks for this machine's GPUs again and again, and holds the newest answers."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

import structlog

from reconciler.apply.beside import beside
from reconciler.apply.daemon_thread import in_daemon_thread
from reconciler.apply.within import within
from reconciler.observe.processes import HOST_PID_NAMESPACE, pid_namespace, read_process
from reconciler.plan.gpu_survey import Answer, Cause

_log = structlog.get_logger("xgen.gpus")

PAUSE_SECONDS = 20.0
"""Where there are GPUs: their memory is shown, and one that is lost is given to nobody."""
DOUBTFUL_PAUSE_SECONDS = 60.0
"""Where a driver does not answer, which takes its time and a process at each try."""
QUIET_PAUSE_SECONDS = 600.0
"""Where there is none, nor a driver: somebody may plug one in."""
REST_SECONDS = 1.0
"""Between two surveys at least, however many processes come and go."""
END_SECONDS = 2.0
"""For a survey under way to end by itself. One that hangs ends with this process."""
_QUIET = (Cause.ABSENT, Cause.NO_DRIVER, Cause.NO_DEVICE, Cause.NOT_ASKED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surveyed:
    """`began`: on the agent's monotonic clock. `own_pids`: the pids that drivers tell are of our
    namespace, for all that can be seen."""

    answers: tuple[Answer, ...]
    began: float
    own_pids: bool


class GpuWatch:
    """`survey` blocks, in a thread of its own that nobody waits for at the end. `clock`: monotonic
    seconds. `wake`: called after each survey. `rest_seconds`: between two of them at least.
    """

    def __init__(
        self,
        survey: Callable[[], tuple[Answer, ...]],
        *,
        clock: Callable[[], float],
        wake: Callable[[], None],
        rest_seconds: float = REST_SECONDS,
    ) -> None:
        self._survey = survey
        self._rest_seconds = rest_seconds
        self._clock = clock
        self._wake = wake
        self._surveyed: Surveyed | None = None
        self._closing = asyncio.Event()
        self._hurry = asyncio.Event()

    @property
    def surveyed(self) -> Surveyed | None:
        """The newest; None before the first."""
        return self._surveyed

    def now(self) -> float:
        """On the clock of `Surveyed.began`."""
        return self._clock()

    def hurry(self) -> None:
        """Processes came or went. Without any GPU that is no news."""
        if self._surveyed is not None and any(each.devices for each in self._surveyed.answers):
            self._hurry.set()

    def ask_again(self) -> None:
        """An operator wants to know now, whatever is known."""
        self._hurry.set()

    def asking(self) -> AbstractAsyncContextManager[None]:
        """It asks for as long as that is open."""
        return beside(self._run, name="gpus", end=self._end, end_seconds=END_SECONDS)

    def _end(self) -> None:
        self._closing.set()
        self._hurry.set()

    async def _run(self) -> None:
        while not self._closing.is_set():
            self._hurry.clear()
            try:
                await in_daemon_thread(self._ask, name="gpus")
            except Exception:  # noqa: BLE001  the task's boundary: what is known stays, and it is asked again
                _log.exception("asking for GPUs failed")
            self._wake()
            await within(self._rest_seconds, self._closing)
            await within(self._pause(), self._hurry)

    def _ask(self) -> None:
        began = self._clock()
        answers = self._survey()
        self._surveyed = Surveyed(answers=answers, began=began, own_pids=_are_ours(answers))

    def _pause(self) -> float:
        answers = self._surveyed.answers if self._surveyed is not None else ()
        if any(answer.devices for answer in answers):
            return PAUSE_SECONDS
        if any(answer.cause is not None and answer.cause not in _QUIET for answer in answers):
            return DOUBTFUL_PAUSE_SECONDS
        return QUIET_PAUSE_SECONDS


def _are_ours(answers: Sequence[Answer]) -> bool:
    """Drivers tell the machine's own pids, or translate them. In a container where they do not, no
    process of that number lives, but by a chance that does not repeat itself for all of them."""
    if pid_namespace() == HOST_PID_NAMESPACE:
        return True
    devices = [device for answer in answers for device in answer.devices]
    pids = {process.pid for device in devices for process in device.processes or ()}
    return all(read_process(pid) is not None for pid in pids)
