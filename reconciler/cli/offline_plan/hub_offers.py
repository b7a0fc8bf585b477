"""What a hub has of the models of a manifest: formats and sizes, before anything is fetched."""

from collections.abc import Iterator
from contextlib import contextmanager

from reconciler.backend.offer import Offer
from reconciler.cli.offline_plan.judge import Offers
from reconciler.errors import Rejected
from reconciler.plan.desired import ModelSpec


@contextmanager
def hub_offers(location: str | None) -> Iterator[Offers | None]:
    """`location`: as --hub takes it; None: no hub is asked. Raises Transient where it does not
    answer."""
    if location is None:
        yield None
        return
    # Here: they take longer to load than a plan without a hub.
    from reconciler.cli.hub_place import opened, readable
    from reconciler.node.offers import offer_of

    with opened(location) as hub, readable(location) as store:
        hub.prefixes()  # a hub that does not answer refuses no model: nothing is planned
        known: dict[tuple[object, ...], Offer | Rejected | None] = {}

        def offers(spec: ModelSpec) -> Offer | None:
            key = (spec.source, spec.file, spec.digest, spec.format, *spec.check_files)
            if key not in known:
                says = offer_of(hub, store, spec)
                known[key] = Rejected(says.missing) if says.missing is not None else says.offer
            found = known[key]
            if isinstance(found, Rejected):
                raise Rejected(str(found))
            return found

        yield offers
