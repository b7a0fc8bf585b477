"""What models were given that have not started yet, so that it stays theirs until they have."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy

from reconciler.plan.desired import DesiredModel
from reconciler.plan.gpu_claims import Claim
from reconciler.plan.gpu_holdings import Holding, Promise
from reconciler.plan.ids import ModelName
from reconciler.plan.shares import fit_together, share_of

PATIENCE_SECONDS = 600.0
"""With another model's process on what was given: it may never go, and another GPU be free."""


class Promises:
    """Kept by who makes the claims."""

    def __init__(self) -> None:
        self._given: Mapping[ModelName, Promise] = {}
        self._since: Mapping[ModelName, float] = {}

    def copy(self) -> "Promises":
        return copy(self)

    def of_now(
        self, held: Mapping[ModelName, Sequence[Holding]], now: float
    ) -> Mapping[ModelName, Promise]:
        """All but those that have waited too long for another model to leave."""
        return {
            name: promise
            for name, promise in self._given.items()
            if now < self._since[name] + PATIENCE_SECONDS or not _is_kept_from(name, promise, held)
        }

    def lapses(self, held: Mapping[ModelName, Sequence[Holding]], now: float) -> bool:
        """Whether claims are to be made anew."""
        return len(self.of_now(held, now)) < len(self._given)

    def note(
        self,
        models: Iterable[DesiredModel],
        made: Mapping[ModelName, Claim],
        idle: Collection[ModelName],
        held: Mapping[ModelName, Sequence[Holding]],
        now: float,
    ) -> None:
        """`idle`: those that could not be started on what they are given. `held`: what runs as it
        is wanted waits for nothing."""
        before, given = self.of_now(held, now), {}
        for model in models:
            claim = made.get(model.name)
            runs = any(each.spec_hash == model.spec_hash for each in held.get(model.name, ()))
            if claim is not None and claim.devices and not runs:
                gpus = tuple(device.identity for device in claim.devices)
                given[model.name] = Promise(
                    spec_hash=model.spec_hash,
                    gpus=gpus,
                    share=share_of(model.spec.gpu_memory, claim.devices),
                    to_spare=claim.to_spare,
                    idle=model.name in idle,
                )
        self._since = {
            name: self._since[name] if name in before and before[name].gpus == promise.gpus else now
            for name, promise in given.items()
        }
        self._given = given


def _is_kept_from(
    name: ModelName, promise: Promise, held: Mapping[ModelName, Sequence[Holding]]
) -> bool:
    others = [each for other, there in held.items() if other != name for each in there]
    return any(
        not fit_together([promise.share, *(each.share for each in others if gpu in each.gpus)])
        for gpu in promise.gpus
    )
