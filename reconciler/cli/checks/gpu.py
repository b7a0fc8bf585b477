"""The GPUs: what each step of the detection said, and what to do where it found none."""

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from reconciler.cli.checks.finding import Finding, fail, ok, skip, warn
from reconciler.cli.gpus_view import unused
from reconciler.observe.devices.cards import Card, unclaimed_cards
from reconciler.observe.devices.survey import survey
from reconciler.plan.gpu_mode import GpuMode
from reconciler.plan.gpu_order import Inventory, inventory
from reconciler.plan.gpu_roll import Roll, enrolled
from reconciler.plan.gpu_survey import Answer, Cause, Step
from reconciler.plan.gpus import NO_INSTANCES, Gpu, Vendor

_SUBJECT = "gpu"
_VENDORS = {Step.AMDSMI: Vendor.AMD, Step.SYSFS: Vendor.AMD, Step.NVML: Vendor.NVIDIA}
_GROUPS = (
    "add the agent's user to the groups video and render; in a container: --device /dev/kfd "
    "--device /dev/dri --group-add video --group-add render"
)
_NO_MODULE = "modprobe {}; if that fails, install the driver for this kernel"
_HUNG = "`dmesg` has the driver's errors; reset the GPU, or reboot the machine"
_STEPS: Mapping[tuple[Step, Cause], str] = {
    (Step.NVML, Cause.ABSENT): "install NVIDIA's driver; in a container: --gpus all, with NVIDIA's "
    "container toolkit, or a device plugin",
    (Step.NVML, Cause.NO_DRIVER): _NO_MODULE.format("nvidia"),
    (Step.NVML, Cause.UNLOADED): _NO_MODULE.format("nvidia"),
    (Step.NVML, Cause.MISMATCH): "the driver was upgraded under the loaded kernel module: reboot, "
    "or stop what uses GPUs and reload nvidia_uvm, nvidia_drm, nvidia_modeset and nvidia; restart "
    "the container",
    (Step.NVML, Cause.NO_PERMISSION): "give the agent's user the files /dev/nvidia*",
    (Step.NVML, Cause.NO_DEVICE): "give the container its GPUs: --gpus all, or a device plugin",
    (Step.AMDSMI, Cause.MISMATCH): "pip install /opt/rocm/share/amd_smi, which fits the library",
    (Step.AMDSMI, Cause.NO_PERMISSION): _GROUPS,
    (Step.AMDSMI, Cause.UNLOADED): _NO_MODULE.format("amdgpu"),
    (Step.SYSFS, Cause.ABSENT): _NO_MODULE.format("amdgpu"),
    (Step.SYSFS, Cause.NO_PERMISSION): _GROUPS,
    (Step.SYSFS, Cause.NO_DEVICE): "give the container its GPUs: --device /dev/kfd "
    "--device /dev/dri, or a device plugin",
}
_FAULT = (
    "nvidia-smi or amd-smi may say more, `dmesg` has the driver's errors; a GPU that is lost comes "
    "back with a reset"
)
_NO_INSTANCES = (
    "`nvidia-smi mig -lgip` lists the profiles, `nvidia-smi mig -cgi PROFILE -C` makes an "
    "instance; `nvidia-smi -mig 0` ends the mode"
)
_HARMLESS = (Cause.ABSENT, Cause.NO_DRIVER, Cause.NO_DEVICE, Cause.NOT_ASKED)
"""As long as there is no card that they should have found."""


def gpu_findings(
    root: Path = Path("/"), *, mode: GpuMode = GpuMode.NODE, known: Roll | None = None
) -> Iterator[Finding]:
    """`root`: where /sys and /dev are. `mode`: as the agent would have it. `known`: what it knows
    of earlier ones."""
    answers = survey(root=root)
    united = inventory(answers, os.environ, mode=mode)
    roll = enrolled(known, answers, os.environ, mode=mode)
    given = mode is GpuMode.PLUGIN
    # The whole machine's are on the bus: here they are other containers'.
    cards = [] if given else unclaimed_cards(united.devices, root)
    for answer in answers:
        yield _finding(answer, united, cards)
        for note in answer.notes:
            yield warn(_SUBJECT, f"{answer.step}: {note}", _GROUPS if "/dev/" in note else _FAULT)
    for gpu in roll.devices:
        if gpu.identity in united.broken or gpu in roll.missing:
            yield warn(_SUBJECT, unused(gpu), _mending(gpu))
        elif gpu.unusable is not None:
            yield skip(_SUBJECT, unused(gpu))
    for note in (*united.faults, *united.notes):
        yield warn(_SUBJECT, note, "start the agent with another mask, or with none")
    if roll.without is None:
        yield ok(_SUBJECT, f"mode {mode}: {mode.meaning}")
    elif roll.notes:
        yield fail(_SUBJECT, roll.without, "do what is said above, or write gpus: 0")
    elif given:
        yield warn(_SUBJECT, roll.without, "or run the agent without --gpu-mode plugin")
    else:
        yield skip(_SUBJECT, roll.without)


def _mending(gpu: Gpu) -> str:
    if gpu.unusable == NO_INSTANCES:
        return _NO_INSTANCES
    return _FAULT


def _finding(answer: Answer, united: Inventory, cards: Sequence[Card]) -> Finding:
    said = f"{answer.step}: {answer.reason}"
    if answer.cause is None:
        return ok(_SUBJECT, said)
    vendor = _VENDORS.get(answer.step)
    told = any(gpu.vendor is vendor for gpu in united.devices)
    step = _step(answer.step, answer.cause)
    if answer.cause not in _HARMLESS:
        needed = not told and vendor is not None  # torch is nobody's first source
        return fail(_SUBJECT, said, step) if needed else warn(_SUBJECT, said, step)
    missing = [card.pci for card in cards if card.vendor is vendor]
    if told or not missing or (answer.step, answer.cause) not in _STEPS:
        return skip(_SUBJECT, said)
    return warn(_SUBJECT, f"{said}; on the PCI bus: {', '.join(missing)}", step)


def _step(step: Step, cause: Cause) -> str:
    if cause in (Cause.HUNG, Cause.CRASHED):
        return _HUNG
    return _STEPS.get((step, cause), _FAULT)
