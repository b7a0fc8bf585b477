"""What the agent of a node would say of a manifest's models before it starts any (PURE)."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from reconciler.backend.engines import Assessment, Engines
from reconciler.backend.inventory import called
from reconciler.backend.offer import Offer
from reconciler.cli.offline_plan.node import OfflineNode, is_untold
from reconciler.errors import Rejected
from reconciler.manifest.policy import Permissions, canonical
from reconciler.plan.barred import never_fits
from reconciler.plan.desired import Desired, DesiredModel, ModelSpec
from reconciler.plan.fallbacks import with_fallbacks
from reconciler.plan.gpu_claims import NO_PROMISES, Claim, claims
from reconciler.plan.gpu_holdings import Holding, Promise
from reconciler.plan.gpu_roll import Roll
from reconciler.plan.gpus import Gpu, one_spelling, pci_address
from reconciler.plan.ids import GpuUuid, ModelName
from reconciler.plan.memory import Needs
from reconciler.plan.shares import share_of

Offers = Callable[[ModelSpec], Offer | None]
"""What a hub has of a model; None: it has nothing to do with it. Raises Rejected for what it cannot
give."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Of one model. `refusal`: why it cannot be started. `missing`: why its files cannot be
    fetched. `engine`: the build that it asks for by
    name. `offer`: what the hub has of it; None: not known."""

    refusal: str | None = None
    missing: str | None = None
    needs: Needs = field(default_factory=dict)
    engine: str | None = None
    offer: Offer | None = None

    @property
    def size_bytes(self) -> int | None:
        return self.offer.size_bytes if self.offer is not None else None


NO_VERDICT = Verdict()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    assessment: Assessment = field(default_factory=Assessment)
    offer: Offer | None = None
    missing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """`desired`: with the GPUs that models get, and fallbacks where nothing runs their sources.
    `idle`: whose claims stand for the reason alone."""

    desired: Desired
    claims: Mapping[ModelName, Claim]
    idle: frozenset[ModelName]
    verdicts: Mapping[ModelName, Verdict]


class Judge:
    """`node`: whose agent it stands for. `offers` None: no hub is asked."""

    def __init__(self, node: OfflineNode, offers: Offers | None) -> None:
        self._node = node
        self._offers = offers
        self._looks: dict[tuple[object, ...], _Look] = {}

    def judge(
        self,
        wanted: Desired,
        held: Mapping[ModelName, Sequence[Holding]],
        staying: Collection[ModelName] = (),
        promised: Mapping[ModelName, Promise] = NO_PROMISES,
    ) -> Judgement:
        """`held`, `staying`, `promised`: see `claims`."""
        fallen: set[ModelName] = set()
        while True:
            settled = with_fallbacks(wanted, fallen)
            make = partial(
                claims, roll=self._node.roll, held=held, staying=staying, promised=promised
            )
            made, looks, idle = self._settled(settled, held, make)
            more = {
                model.name
                for model in settled.models
                if model.fallback is not None
                and (look := looks.get(model.name)) is not None
                and look.assessment.no_backend is not None
            }
            if not more:
                models = tuple(_placed(each, made.get(each.name)) for each in settled.models)
                return Judgement(
                    desired=replace(settled, models=models),
                    claims=made,
                    idle=idle,
                    verdicts={
                        model.name: _verdict(model, looks[model.name])
                        for model in settled.models
                        if model.name in looks
                    },
                )
            fallen |= more

    @property
    def asks_hub(self) -> bool:
        return self._offers is not None

    def unplaced(self, wanted: Desired) -> Iterator[str]:
        """Notes on models that name GPUs which cannot be told from each other."""
        for model in wanted.models:
            if model.enabled and (strange := _strange(model, self._node.roll)):
                yield (
                    f"which GPU {strange} is, of {model.name}, the fleet file does not say "
                    "(uuid, pci)"
                )

    def _settled(
        self,
        desired: Desired,
        held: Mapping[ModelName, Sequence[Holding]],
        make: Callable[[Sequence[DesiredModel]], dict[ModelName, Claim]],
    ) -> tuple[dict[ModelName, Claim], dict[ModelName, _Look], frozenset[ModelName]]:
        """What cannot be started keeps its claim for the reason alone, and others' GPUs free."""
        enabled = [model for model in desired.models if model.enabled]
        hopeless: dict[ModelName, Claim] = {}
        while True:
            others = [
                model
                for model in enabled
                if model.name not in hopeless and not _strange(model, self._node.roll)
            ]
            made = make(others) | hopeless
            looks = {model.name: self._look(model, made.get(model.name)) for model in enabled}
            more = {
                model.name: made[model.name]
                for model in others
                if model.name not in held
                and made[model.name].devices
                and self._is_hopeless(model, looks[model.name])
            }
            if not more:
                return made, looks, frozenset(hopeless)
            hopeless |= more

    def _is_hopeless(self, model: DesiredModel, look: _Look) -> bool:
        if look.assessment.refusal is not None:
            return True
        rooms = self._node.rooms
        return not model.spec.skip_memory_check and any(
            never_fits(need, rooms[pool].total_bytes)
            for pool, need in look.assessment.needs.items()
            if pool in rooms
        )

    def _look(self, model: DesiredModel, claim: Claim | None) -> _Look:
        if claim is None or claim.unknown is not None:
            return _Look()
        if claim.refusal is not None:
            return _Look(assessment=Assessment(refusal=claim.refusal))
        if model.spec.engine is not None and not self._node.engines_known:
            return _Look()
        key = (model.name, model.spec_hash, model.spec.digest, claim.devices)
        if key not in self._looks:
            self._looks[key] = self._asked(model, claim.devices)
        return self._looks[key]

    def _asked(self, model: DesiredModel, devices: tuple[Gpu, ...]) -> _Look:
        """What a node may allow is not for us to refuse: `validate` warns of it."""
        offer, missing = None, None
        try:
            offer = self._offers(model.spec) if self._offers is not None else None
        except Rejected as exc:
            missing = str(exc)
        permissions = Permissions(
            flags=frozenset(map(canonical, model.spec.extra_args)),
            variables=frozenset(model.spec.env),
            file_roots=(Path("/"),),
        )
        engines = Engines(
            self._node.inventory, machine_bytes=self._node.memory_bytes, permissions=permissions
        )
        return _Look(
            assessment=engines.assess(model, None, devices, offer),
            offer=offer,
            missing=missing,
        )


def _placed(model: DesiredModel, claim: Claim | None) -> DesiredModel:
    """With its devices; of GPUs that nobody knows, with the names that the manifest has."""
    if claim is not None and claim.unknown is None and claim.refusal is None:
        return claim.put_into(model)
    gpus = tuple(GpuUuid(one_spelling(name)) for name in model.spec.gpu_ids)
    share = share_of(model.spec.gpu_memory, ()) if gpus else None
    return replace(model, gpus=gpus, gpu_share=share)


def _verdict(model: DesiredModel, look: _Look) -> Verdict:
    found = look.assessment
    build = found.choice.build if found.choice is not None else None
    named = build is not None and model.spec.engine is not None
    return Verdict(
        refusal=found.refusal,
        missing=look.missing,
        needs=found.needs,
        engine=f"{called(build)} is {build.detail}" if build is not None and named else None,
        offer=look.offer,
    )


def _strange(model: DesiredModel, roll: Roll | None) -> str | None:
    """A GPU that it names by what the fleet file does not tell of every GPU."""
    devices = roll.devices if roll is not None else ()
    for name in model.spec.gpu_ids:
        address = pci_address(name)
        if name.isdigit() or not devices:
            continue
        if address is not None:
            known: list[str | None] = [device.pci for device in devices]
            found = address in known
        else:
            known = [None if is_untold(device) else device.uuid for device in devices]
            found = name.lower() in {device.identity.lower() for device in devices}
        if not found and None in known:
            return name
    return None
