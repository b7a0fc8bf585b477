"""Which GPUs each model gets: from what the manifest says to devices, once, at planning.

1. What has a process of its spec keeps what that holds (R4).
2. `gpu_ids` name devices; whether two models name one is for `devices` to judge.
3. `gpus: N` gets N that nobody has: in order of priority and name, a model's own first, then by
   index, all of one kind; CUDA shows a process only one MIG instance, so several are whole GPUs.
4. What may surge gets N others of that kind instead, where nobody claims or holds so many.
5. What a model was given it keeps until it has started, wherever else something comes free.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from reconciler.plan.backend_ids import is_for_cpu, vendor_of
from reconciler.plan.desired import DesiredModel, Strategy
from reconciler.plan.gpu_holdings import Holding, Promise, Staying, staying_on
from reconciler.plan.gpu_mode import UNNAMED, GpuMode
from reconciler.plan.gpu_roll import Roll
from reconciler.plan.gpus import Gpu, pci_address
from reconciler.plan.ids import GpuUuid, ModelName
from reconciler.plan.shares import fit_together, share_of
from reconciler.plan.wording import amount

_LISTED = 2
_ONE_INSTANCE = "of MIG instances a model can have only one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What one model gets; no `devices`: the CPU. `refusal`: why it gets none, as a sentence.

    `unknown`: why that cannot be told yet, as a sentence. `to_spare`: see `gpus_to_spare`.
    """

    devices: tuple[Gpu, ...] = ()
    refusal: str | None = None
    unknown: str | None = None
    to_spare: bool = False

    def put_into(self, model: DesiredModel) -> DesiredModel:
        gpus = tuple(device.identity for device in self.devices)
        share = share_of(model.spec.gpu_memory, self.devices)
        if (gpus, share, self.to_spare) == (model.gpus, model.gpu_share, model.gpus_to_spare):
            return model
        return replace(model, gpus=gpus, gpu_share=share, gpus_to_spare=self.to_spare)


class _Unfit(Exception):
    """Why a model gets no devices."""


NO_PROMISES: Mapping[ModelName, Promise] = MappingProxyType({})


def claims(
    models: Iterable[DesiredModel],
    roll: Roll | None,
    held: Mapping[ModelName, Sequence[Holding]],
    staying: Collection[ModelName] = (),
    promised: Mapping[ModelName, Promise] = NO_PROMISES,
) -> dict[ModelName, Claim]:
    """One for each enabled model. `roll` None: nobody has looked yet. `staying`: those that cannot
    be started beside what they run now."""
    enabled = [model for model in models if model.enabled]
    wanted = [model for model in enabled if model.instead_of is None]
    made = {model.name: _kept(model, roll, held.get(model.name, ())) for model in wanted}
    there = staying_on(wanted, held)
    books = _Books(roll=roll or Roll(), held=held, promised=promised, staying=there)
    open_ones = sorted((each for each in wanted if made[each.name] is None), key=books.turn)
    for model in open_ones:
        if model.spec.gpu_ids and roll is not None:
            made[model.name] = _settled(model, books)
    for model in wanted:
        books.enter(model, made[model.name])
    for model in open_ones:
        if made[model.name] is None:
            claim = _counted(model, roll, books)
            books.enter(model, claim)
            made[model.name] = claim
    for model in sorted(enabled, key=books.turn):
        if model.instead_of is not None:
            made[model.name] = claim = _left_over(model, roll, books)
            books.enter(model, claim)
    for model in open_ones:
        if model.name not in staying and (spare := _spare(model, made[model.name], books)):
            books.enter(model, spare)
            made[model.name] = spare
    return {name: claim for name, claim in made.items() if claim is not None}


def _left_over(model: DesiredModel, roll: Roll | None, books: "_Books") -> Claim:
    """What was last good takes nothing that anybody claims, and gives it up where it runs (R7)."""
    claim = _kept(model, roll, books.held.get(model.name, ()))
    if claim is None:
        by_name = bool(model.spec.gpu_ids) and roll is not None
        claim = _settled(model, books) if by_name else _counted(model, roll, books)
    for device in claim.devices:
        if not books.has_room(device, model):
            who = books.who(device)
            return Claim(refusal=f"{named(device)} is claimed by {who}, which comes first")
    return claim


def _kept(model: DesiredModel, roll: Roll | None, held: Sequence[Holding]) -> Claim | None:
    holding = next((each for each in held if each.spec_hash == model.spec_hash), None)
    if holding is None:
        return None
    found = [roll.find(gpu) if roll is not None else None for gpu in holding.gpus]
    return Claim(devices=tuple(device for device in found if device is not None))


def _spare(model: DesiredModel, claim: Claim | None, books: "_Books") -> Claim | None:
    """Other devices than its process holds, of the kind that it would get in that one's place."""
    if claim is None or not claim.devices or model.spec.gpu_ids:
        return None
    if model.strategy is Strategy.RECREATE or not books.makes_way(model, claim.devices):
        return None
    if model.strategy is Strategy.AUTO and books.is_to_stay(model, claim.devices):
        return None
    devices = books.beside(model, claim.devices)
    return Claim(devices=devices, to_spare=True) if devices else None


def _counted(model: DesiredModel, roll: Roll | None, books: "_Books") -> Claim:
    spec = model.spec
    if spec.gpus == 0 or (spec.gpus is None and not spec.gpu_ids and is_for_cpu(spec.backend)):
        return Claim()
    if roll is None:
        return Claim(unknown="which GPUs there are is being asked")
    if spec.gpus is None and not roll.usable:
        if roll.notes:
            known = "cannot tell whether there are GPUs" if roll.failed else "no GPU can be used"
            return Claim(refusal=f"{known}: {'; '.join(roll.notes)}; gpus: 0 is the CPU")
        return Claim()
    return _settled(model, books)


def _settled(model: DesiredModel, books: "_Books") -> Claim:
    spec = model.spec
    try:
        if spec.gpu_ids:
            devices = _named(spec.gpu_ids, books.roll)
            if small := _too_small(model, devices):
                raise _Unfit(f"cannot give it {spec.gpu_memory} of each GPU: {_in_all(small)}")
            return Claim(devices=devices)
        count = spec.gpus or (spec.tensor_parallel_size or 1) * spec.pipeline_parallel_size
        return Claim(devices=books.choose(model, count))
    except _Unfit as exc:
        return Claim(refusal=str(exc))


def _named(ids: Sequence[str], roll: Roll) -> tuple[Gpu, ...]:
    if roll.mode is GpuMode.PLUGIN:
        raise _Unfit(UNNAMED)
    found: list[Gpu] = []
    for name in ids:
        device = _one(name, roll)
        if device in found:
            raise _Unfit(f"cannot use gpu_ids: {name} is {named(device)}, which stands there twice")
        if device.unusable is not None:
            at = "" if device.pci in (None, device.identity) else f" (at {device.pci})"
            why = f"{device.unusable}{at}"
            raise _Unfit(f"cannot use gpu_ids: {named(device)} is not used: {why}")
        found.append(device)
    return tuple(found)


def _one(name: str, roll: Roll) -> Gpu:
    address = pci_address(name)
    matching = [
        device
        for device in roll.devices
        if name == str(device.index)
        or name.lower() == device.identity.lower()
        or (address is not None and address == device.pci)
    ]
    if len(matching) == 1:
        return matching[0]
    if matching:
        several = ", ".join(device.identity for device in matching)
        raise _Unfit(f"cannot use gpu_ids: several are at {name}: name one of {several}")
    instances = [d.identity for d in roll.devices if (d.mig_of or "").lower() == name.lower()]
    if instances:
        raise _Unfit(
            f"cannot use gpu_ids: {name} is in MIG mode: name one of {', '.join(instances)}"
        )
    raise _Unfit(f"cannot use gpu_ids: there is no GPU {name}; {there_is(roll)}{_unused(roll)}")


def _too_small(model: DesiredModel, devices: Iterable[Gpu]) -> list[Gpu]:
    """Those that have less in all than it wants of each."""
    written = model.spec.gpu_memory
    return [device for device in devices if (share_of(written, (device,)) or 0.0) > 1]


def _in_all(devices: Iterable[Gpu]) -> str:
    return ", ".join(
        f"{named(device)} has {amount(device.memory_total_bytes or 0)} in all" for device in devices
    )


def named(device: Gpu) -> str:
    """As reasons put it: `GPU 0 (GPU-5f1…)`."""
    number = f"GPU {device.index}" if device.index is not None else "the GPU"
    return f"{number} ({device.identity})"


def there_is(roll: Roll) -> str:
    """What a node has, for whoever asks for more; without any, what was said of that."""
    if not roll.usable:
        return f"this node has none that can be used ({'; '.join(roll.notes or roll.told)})"
    listed = [f"{d.index}: {_placed(d)}, {d.name}" for d in roll.usable]
    return f"this node has {_some(listed)}"


def _unused(roll: Roll) -> str:
    """Why others have no number, such as a mask."""
    unused = [f"{_placed(d)}: {d.unusable}" for d in roll.devices if d.unusable is not None]
    return f"; not used are {_some(unused)}" if unused else ""


def _placed(device: Gpu) -> str:
    where = "" if device.pci in (None, device.identity) else f" at {device.pci}"
    return f"{device.identity}{where}"


def _some(listed: Sequence[str]) -> str:
    """The first of them: a node may have dozens."""
    more = len(listed) - _LISTED
    shown = ", ".join(listed[:_LISTED])
    return f"{shown}, and {more} more (see `xgen-model gpus`)" if more > 0 else shown


@dataclass(slots=True, kw_only=True)
class _Books:
    """What is promised of each device. `shares`: None is the whole of it."""

    roll: Roll
    held: Mapping[ModelName, Sequence[Holding]]
    promised: Mapping[ModelName, Promise]
    staying: Staying
    shares: dict[GpuUuid, list[tuple[ModelName, float | None]]] = field(default_factory=dict)

    def enter(self, model: DesiredModel, claim: Claim | None) -> None:
        for device in claim.devices if claim is not None else ():
            share = share_of(model.spec.gpu_memory, (device,))
            self.shares.setdefault(device.identity, []).append((model.name, share))

    def turn(self, model: DesiredModel) -> tuple[int, bool, bool, bool, bool, int, str]:
        """Who chooses first; those that need whole GPUs before those that share."""
        promise = self.promised.get(model.name)
        idle = promise is not None and promise.idle
        waits = promise is not None and self._is_firm(model.name, promise)
        has_some = any(holding.gpus for holding in self.held.get(model.name, ()))
        need = -(model.spec.gpus or 1)
        shares = model.spec.gpu_memory is not None
        late = not (has_some or waits)
        return (-model.priority, not has_some, not idle, late, shares, need, model.name)

    def is_to_stay(self, model: DesiredModel, devices: Sequence[Gpu]) -> bool:
        """Whether it was to have these before, in the place of what it runs."""
        was = self.promised.get(model.name)
        here = (model.spec_hash, tuple(device.identity for device in devices), False)
        return was is not None and here == (was.spec_hash, was.gpus, was.to_spare)

    def makes_way(self, model: DesiredModel, devices: Sequence[Gpu]) -> bool:
        """Whether a process of the model serves on one of these, which leaves no room for two, or
        left none when it was given others."""
        serving = [each for each in self.held.get(model.name, ()) if each.serves]
        was = self.promised.get(model.name)
        if was is not None and was.to_spare and was.spec_hash == model.spec_hash:
            return bool(serving)
        return any(
            device.identity in holding.gpus
            and not self._fits_beside_all(device, model, share_of(model.spec.gpu_memory, (device,)))
            for device in devices
            for holding in serving
        )

    def beside(self, model: DesiredModel, like: Sequence[Gpu]) -> tuple[Gpu, ...]:
        """As many of the same kind as `like`, with room beside all that is claimed or held."""
        free = [
            device
            for device in self.roll.usable
            if _name(device) == _name(like[0])
            and device.memory_total_bytes == like[0].memory_total_bytes
            and self._fits_beside_all(device, model, share_of(model.spec.gpu_memory, (device,)))
        ]
        was = self.promised.get(model.name)
        given = was.gpus if was is not None and was.to_spare else ()
        free.sort(key=lambda each: (each.identity not in given, *self._preference(each, model)))
        chosen = free[: len(like)] if len(free) >= len(like) else []
        return tuple(sorted(chosen, key=lambda device: device.index or 0))

    def _fits_beside_all(self, device: Gpu, model: DesiredModel, share: float | None) -> bool:
        """Beside what others claim or hold, whichever is more, and what its own processes hold."""
        claimed = dict(self.shares.get(device.identity, ()))
        taken = [share]
        for name in claimed.keys() | self.held.keys():
            held = [each.share for each in self.held.get(name, ()) if device.identity in each.gpus]
            own = name == model.name or name not in claimed
            taken += held if own or _sum(held) > _sum([claimed[name]]) else [claimed[name]]
        return fit_together(taken)

    def choose(self, model: DesiredModel, count: int) -> tuple[Gpu, ...]:
        """Raises _Unfit where there are not so many."""
        vendor = vendor_of(model.spec.backend)
        whole = [d for d in self.roll.usable if count == 1 or d.mig_of is None]
        suitable = [d for d in whole if vendor in (None, d.vendor)]
        small = _too_small(model, suitable)
        large = [device for device in suitable if device not in small]
        free = sorted(
            (device for device in large if self.has_room(device, model)),
            key=lambda device: self._preference(device, model),
        )
        for kind in (_name, _class):
            for first in free:
                alike = [device for device in free if kind(device) == kind(first)]
                if len(alike) >= count:
                    return tuple(sorted(alike[:count], key=lambda device: device.index or 0))
        wish = f"cannot give it {count} GPU{'' if count == 1 else 's'}"
        of_vendor = f" of {vendor}" if vendor is not None else ""
        if len(suitable) < count:
            several = "" if whole == list(self.roll.usable) else f"; {_ONE_INSTANCE}"
            unused = _unused(self.roll) if self.roll.usable else ""
            raise _Unfit(f"{wish}{of_vendor}: {there_is(self.roll)}{unused}{several}")
        if len(large) < count:
            raise _Unfit(f"{wish}{of_vendor} with {model.spec.gpu_memory} each: {_in_all(small)}")
        if len(free) >= count:
            raise _Unfit(f"{wish} of one kind; {there_is(self.roll)}")
        taken = [f"{named(d)} by {self.who(d)}" for d in large if d not in free]
        raise _Unfit(
            f"{wish}{of_vendor}: {len(free)} of {len(large)} have room; claimed are "
            f"{', '.join(taken)}"
        )

    def has_room(self, device: Gpu, model: DesiredModel) -> bool:
        own = share_of(model.spec.gpu_memory, (device,))
        return fit_together([own, *(share for _, share in self.shares.get(device.identity, ()))])

    def _preference(
        self, device: Gpu, model: DesiredModel
    ) -> tuple[bool, bool, bool, int, bool, int]:
        """What it was given before, then its own; then what others were not given; then what no
        process of another has to leave first, and what one leaves before what one may stay on; then
        an empty one."""
        gpu, name = device.identity, model.name
        own = any(gpu in each.gpus for each in self.held.get(name, ()))
        there = {who: each for who, each in self.promised.items() if gpu in each.gpus}
        was = there.get(name)  # what is to spare is chosen beside what it has now
        given = was is not None and not was.to_spare and self._is_firm(name, was)
        others_were = any(
            who != name and not each.idle and self._is_firm(who, each)
            for who, each in there.items()
        )
        others = [each for who, held in self.held.items() if who != name for each in held]
        share = share_of(model.spec.gpu_memory, (device,))
        held = any(gpu in each.gpus for each in others) + self._is_kept(gpu, name, share)
        shared = bool(self.shares.get(gpu))
        return (not given, not own, others_were, held, shared, device.index or 0)

    def _is_firm(self, name: ModelName, promise: Promise) -> bool:
        """Whether nobody else need stay on any of them without leaving room."""
        return not any(self._is_kept(gpu, name, promise.share) for gpu in promise.gpus)

    def _is_kept(self, gpu: GpuUuid, name: ModelName, share: float | None) -> bool:
        staying = self.staying.get(gpu, {})
        others = [each for who, shares in staying.items() if who != name for each in shares]
        return bool(others) and not fit_together([share, *others])

    def who(self, device: Gpu) -> str:
        return " and ".join(name for name, _ in self.shares.get(device.identity, ()))


def _sum(shares: Iterable[float | None]) -> float:
    return sum(1.0 if share is None else share for share in shares)


def _name(device: Gpu) -> object:
    return (device.vendor, device.name)


def _class(device: Gpu) -> object:
    return device.gpu_class
