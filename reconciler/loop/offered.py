"""What the hub says of models before their files are here, as one tick takes it (PURE)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from reconciler.backend.offer import HubSays, Offer
from reconciler.plan.desired import DesiredModel, Format, ModelSpec
from reconciler.plan.ids import ModelName
from reconciler.plan.observed import FilesCached

Told = Mapping[ModelName, HubSays]
_ASKED = "the hub is being asked which format its files have, and how large they are"


class Formats(Protocol):
    """The engines."""

    def likely_format(self, spec: ModelSpec) -> Format: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Offered:
    """`unoffered`: why a fetch waits, as a clause; None: it does not."""

    offer: Offer | None = None
    unoffered: str | None = None

    @property
    def size_bytes(self) -> int | None:
        return self.offer.size_bytes if self.offer is not None else None


def offered(
    told: Told | None, model: DesiredModel, files: FilesCached | None, engines: Formats
) -> Offered:
    """`told` None: nobody asks. What lies in place is never asked for."""
    spec = model.spec
    local = spec.source.startswith("file:")
    if told is None or files is not None or local or not model.enabled:
        return Offered()
    says = told.get(model.name)
    if says is not None and says.spec in (None, spec):
        return Offered(offer=says.offer)
    # The format decides what here can run it, and whether its `fallback:` is taken.
    enough_known = spec.skip_memory_check and engines.likely_format(spec) is not Format.AUTO
    return Offered(unoffered=None if enough_known else _ASKED)
