"""What the hub says of models before their files are here, as one tick takes it (PURE)."""

from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.backend.offer import HubSays, Offer
from reconciler.plan.desired import DesiredModel
from reconciler.plan.ids import ModelName
from reconciler.plan.observed import FilesCached

Told = Mapping[ModelName, HubSays]
_ASKED = "the hub is being asked how large it is"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """`unsized`: why a fetch waits, as a clause; None: it does not."""

    offer: Offer | None = None
    unsized: str | None = None

    @property
    def size_bytes(self) -> int | None:
        return self.offer.size_bytes if self.offer is not None else None


def offered(told: Told | None, model: DesiredModel, files: FilesCached | None) -> Offered:
    """`told` None: nobody asks. What lies in place is never asked for."""
    local = model.spec.source.startswith("file:")
    if told is None or files is not None or local or not model.enabled:
        return Offered()
    says = told.get(model.name)
    if says is not None and says.spec in (None, model.spec):
        return Offered(offer=says.offer)
    return Offered(unsized=None if model.spec.skip_memory_check else _ASKED)
