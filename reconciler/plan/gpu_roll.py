"""A node's GPUs as its agent knows them: their numbers stay, whatever later surveys find.

A survey that finds less than the one before is one of two things. A driver that does not answer at
all says nothing: its GPUs count as they were. One that answers without a GPU has lost it: that
keeps its number, so that no other GPU is meant by it, and is given to nobody. So does one that an
earlier agent knew (`recalled`), until somebody sees it again.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import count

from reconciler.plan.gpu_mode import NONE_GIVEN, GpuMode
from reconciler.plan.gpu_order import inventory
from reconciler.plan.gpu_survey import Answer, Cause, Step
from reconciler.plan.gpus import Gpu, Vendor
from reconciler.plan.ids import GpuUuid

_VENDORS: Mapping[Step, tuple[Vendor, ...]] = {
    Step.AMDSMI: (Vendor.AMD,),
    Step.SYSFS: (Vendor.AMD,),
    Step.NVML: (Vendor.NVIDIA,),
    Step.TORCH: (Vendor.AMD, Vendor.NVIDIA),
}
_UNLISTED = "lost: its driver does not list it any more"
_UNSEEN = "it has not been seen since this agent started"
_HARMLESS = (None, Cause.ABSENT, Cause.NO_DRIVER, Cause.NO_DEVICE, Cause.NOT_ASKED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Roll:
    """`devices`: by index, then those that were never usable. `told`: what each step said.

    `notes`: what is amiss, as sentences. `failed`: a driver does not answer, so there may be more.
    `hints`: what of the masks is not clear, or that no GPU was given. `drivers`: with versions.
    """

    devices: tuple[Gpu, ...] = ()
    told: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    hints: tuple[str, ...] = ()
    failed: bool = False
    drivers: tuple[str, ...] = ()
    mode: GpuMode = GpuMode.NODE

    @property
    def usable(self) -> tuple[Gpu, ...]:
        """What models can be given, by index."""
        return tuple(
            device
            for device in self.devices
            if device.index is not None and device.unusable is None
        )

    @property
    def lasting(self) -> "Roll":
        """Without the figures that move from one survey to the next."""
        return replace(self, devices=tuple(map(_without_figures, self.devices)))

    @property
    def missing(self) -> tuple[Gpu, ...]:
        """What has a number, and is listed by nobody."""
        return tuple(each for each in self.devices if each.unusable in (_UNLISTED, _UNSEEN))

    @property
    def without(self) -> str | None:
        """What becomes of models where no GPU can be used; None: there is one."""
        if self.usable:
            return None
        if self.notes:
            return "no GPU can be used: models are refused, but for those that say gpus: 0"
        if self.mode is GpuMode.PLUGIN:
            return NONE_GIVEN
        return "no GPU can be used here: models run on the CPU"

    def find(self, identity: GpuUuid) -> Gpu | None:
        return next((device for device in self.devices if device.identity == identity), None)


def recalled(numbered: Iterable[Gpu]) -> Roll:
    """What an earlier agent knew, as the roll before the first survey of this one."""
    return Roll(devices=tuple(replace(gpu, unusable=_UNSEEN) for gpu in numbered))


def numbered(roll: Roll) -> tuple[Gpu, ...]:
    """What the next agent is to know: by number, what tells each GPU from the others."""
    return tuple(
        Gpu(
            vendor=gpu.vendor,
            uuid=gpu.uuid,
            pci=gpu.pci,
            name=gpu.name,
            architecture=gpu.architecture,
            mig_of=gpu.mig_of,
            index=gpu.index,
        )
        for gpu in roll.devices
        if gpu.index is not None
    )


def enrolled(
    before: Roll | None,
    answers: Sequence[Answer],
    environment: Mapping[str, str],
    named: Collection[str] = (),
    mode: GpuMode = GpuMode.NODE,
) -> Roll:
    """The roll after a survey. `before` None: it is the first; the others: see `inventory`."""
    found = inventory(answers, environment, named, mode)
    fresh = list(found.devices)
    nameless = [device for device in fresh if device.is_nameless and device.unusable is not None]
    kept: list[Gpu] = []
    hidden: list[Gpu] = []
    silent = _silent(answers)
    known = before.devices if before is not None else ()
    called = {old.identity for old in known}
    for old in known:
        new = _same(old, fresh, called)
        if new is not None:
            fresh.remove(new)
            kept.append(_renewed(old, new))
            hidden += kept[-1:] if new.unusable and new.identity not in found.broken else []
        elif old.vendor in silent:
            kept.append(_without_figures(old))
        elif old.index is not None:
            gone = _UNLISTED
            if same := next((each for each in nameless if each.vendor is old.vendor), None):
                nameless.remove(same)
                fresh.remove(same)
                gone = same.unusable or gone
            kept.append(replace(_without_figures(old), unusable=gone))
    devices = _numbered(kept, fresh)
    faults = [answer for answer in answers if _is_fault(answer, silent, kept)]
    never = [d for d in devices if d.index is None and d.identity in found.broken]
    lost = [d for d in devices if d.index is not None and d.unusable and d not in hidden]
    notes = (*_of_faults(faults, kept), *_of_lost(answers, lost), *map(_broken, never))
    notes = (*notes, *found.faults)
    without = mode is GpuMode.PLUGIN and all(device.index is None for device in devices)
    return Roll(
        devices=devices,
        told=tuple(f"{answer.step}: {answer.reason}" for answer in answers),
        notes=notes,
        hints=(*found.notes, NONE_GIVEN) if without and not notes else found.notes,
        failed=bool(faults),
        drivers=_drivers(answers) or (before.drivers if before is not None else ()),
        mode=mode,
    )


def gains(before: Roll, now: Roll) -> tuple[str, ...]:
    """What models can have now and could not before, as sentences."""
    had = {(device.identity, device.name) for device in before.usable}
    new = [device for device in now.usable if (device.identity, device.name) not in had]
    drivers = [driver for driver in now.drivers if before.drivers and driver not in before.drivers]
    return (
        *(f"GPU {device.index} ({device.identity}) can be used now" for device in new),
        *(f"GPUs have {driver} now" for driver in drivers),
    )


def _drivers(answers: Iterable[Answer]) -> tuple[str, ...]:
    return tuple(
        f"driver {answer.driver} ({answer.step})"
        for answer in answers
        if answer.devices and answer.driver is not None
    )


def _silent(answers: Sequence[Answer]) -> set[Vendor]:
    """Vendors of whom nobody tells a device."""
    spoken = {device.vendor for answer in answers for device in answer.devices}
    return set(Vendor) - spoken


def _same(old: Gpu, fresh: Iterable[Gpu], called: Collection[GpuUuid]) -> Gpu | None:
    """By what it is called, else by where it is: libraries do not agree on UUIDs of AMD's.

    `called`: what is known by its name, and so is no other that has taken its place.
    """
    for new in fresh:
        if new.identity == old.identity:
            return new
    if old.mig_of is not None or old.pci is None:
        return None
    place = (old.vendor, old.pci)
    there = (each for each in fresh if (each.vendor, each.pci) == place and each.mig_of is None)
    return next((each for each in there if each.identity not in called), None)


def _renewed(old: Gpu, new: Gpu) -> Gpu:
    """A number, once given, stays; so does the name by which processes hold it. Another card of
    NVIDIA in its slot has another name, and no process."""
    other = old.vendor is Vendor.NVIDIA and new.uuid is not None
    return replace(new, uuid=new.uuid if other else old.uuid, index=old.index)


def _without_figures(old: Gpu) -> Gpu:
    return replace(
        old, memory_used_bytes=None, memory_free_bytes=None, utilization=None, processes=None
    )


def _numbered(kept: Iterable[Gpu], fresh: Iterable[Gpu]) -> tuple[Gpu, ...]:
    """New ones, and those that are usable at last, get the numbers after the highest."""
    listed = [*kept, *(replace(device, index=None) for device in fresh)]
    highest = max((device.index for device in kept if device.index is not None), default=-1)
    following = count(highest + 1)
    listed = [
        replace(device, index=next(following))
        if device.index is None and device.unusable is None
        else device
        for device in listed
    ]
    return tuple(sorted(listed, key=lambda device: (device.index is None, device.index or 0)))


def _is_fault(answer: Answer, silent: Set[Vendor], kept: Sequence[Gpu]) -> bool:
    """Whether there may be GPUs of which nobody tells now."""
    if answer.devices or silent.isdisjoint(_VENDORS.get(answer.step, ())):
        return False
    if answer.cause not in _HARMLESS:
        return True
    # torch is nobody's first source: what it has not got is told by the steps before it.
    asked = answer.step is not Step.TORCH and answer.cause is not Cause.NOT_ASKED
    return asked and _of_step(answer.step, kept)


def _of_step(step: Step, devices: Iterable[Gpu]) -> bool:
    vendors = _VENDORS.get(step, ())
    return any(device.vendor in vendors and device.index is not None for device in devices)


def _of_faults(faults: Iterable[Answer], kept: Sequence[Gpu]) -> Iterable[str]:
    for answer in faults:
        usable = [device for device in kept if device.unusable is None]
        since = "; its GPUs count as they were" if _of_step(answer.step, usable) else ""
        yield f"{answer.step}: {answer.reason}{since}"


def _broken(device: Gpu) -> str:
    called = f"the GPU {device.identity}"
    if device.index is not None:
        called = f"GPU {device.index} ({device.identity})"
    elif device.is_nameless:
        called = f"a GPU of {device.vendor} (its driver's number {device.order})"
    return f"{called} is {'' if device.is_lost else 'not used: '}{device.unusable}"


def _of_lost(answers: Iterable[Answer], lost: Sequence[Gpu]) -> Iterable[str]:
    for device in lost:
        yield _broken(device)
    for answer in answers if lost else ():
        yield from (f"{answer.step}: {note}" for note in answer.notes)
