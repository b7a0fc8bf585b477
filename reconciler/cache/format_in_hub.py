"""Which format a model has, by what the hub holds of it."""

from reconciler.cache.address import LocalAddress, parse_source
from reconciler.cache.choose import choose, wish_of
from reconciler.cache.digests import pinned_digest
from reconciler.cache.listing import listed
from reconciler.cache.store import Store
from reconciler.plan.desired import Format, ModelSpec


def format_in_hub(store: Store, spec: ModelSpec) -> Format:
    """By its catalog, else by the names of its files. AUTO for what is not the hub's.

    Blocking; raises as the store does, and as `choose` for what is no model.
    """
    address = parse_source(spec.source, spec.file, spec.format)
    if isinstance(address, LocalAddress):
        return Format.AUTO
    record = listed(store, address.prefix, pinned_digest(spec))
    wish = wish_of(spec, address.prefix, address.file)
    return choose(record.sizes, wish, record.main_ref).format
