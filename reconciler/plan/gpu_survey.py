"""The chain of questions about GPUs: which come, in which order, and what was answered.

amdsmi ─▶ sysfs, where amdsmi has none ─▶ NVML ─▶ torch, where nobody has one ─▶ CPU
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from reconciler.plan.gpus import Gpu


class Step(StrEnum):
    AMDSMI = "amdsmi"
    SYSFS = "sysfs"
    NVML = "nvml"
    TORCH = "torch"
    CPU = "cpu"


class Cause(StrEnum):
    """Why a step has no device. ABSENT: nothing of that vendor is installed here.

    NO_DRIVER: its driver is not loaded; UNLOADED: although there is a card for it.
    """

    ABSENT = "absent"
    NO_DRIVER = "no-driver"
    UNLOADED = "unloaded"
    MISMATCH = "mismatch"
    NO_PERMISSION = "no-permission"
    NO_DEVICE = "no-device"
    HUNG = "hung"
    CRASHED = "crashed"
    NOT_ASKED = "not-asked"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one step said.

    `reason`: one sentence. `cause`: set where it has no device. `notes`: devices and values that it
    could not tell of, each with the reason. `driver`: its version.
    """

    step: Step
    reason: str
    devices: tuple[Gpu, ...] = ()
    cause: Cause | None = None
    notes: tuple[str, ...] = ()
    driver: str | None = None


def next_step(answers: Sequence[Answer]) -> Step | None:
    """What to ask after these answers; None: all is asked."""
    asked = {answer.step for answer in answers}
    return next((step for step in Step if step not in asked), None)


def needless(step: Step, answers: Sequence[Answer]) -> str | None:
    """Why a step need not be asked after these answers; None: ask it."""
    with_devices = {answer.step for answer in answers if answer.devices}
    if step is Step.SYSFS and Step.AMDSMI in with_devices:
        return "amdsmi has told"
    if step is Step.TORCH:
        if with_devices:
            return "the vendors' own libraries have told"
        for answer in answers:
            if answer.cause in (Cause.HUNG, Cause.CRASHED):
                return f"{answer.step} {answer.reason}, and torch would ask the same driver"
    return None
