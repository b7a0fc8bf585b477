"""The last step of the chain: there is always a CPU."""

import os
import platform

from reconciler.plan.gpu_survey import Answer, Step


def ask_cpu() -> Answer:
    """Never fails. It has no device: what runs on the CPU is given none."""
    cores = len(os.sched_getaffinity(0))
    return Answer(step=Step.CPU, reason=f"{cores} cores, {platform.machine()}")
