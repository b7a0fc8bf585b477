"""Other files of the same model in the hub."""

from reconciler.cache.address import LocalAddress, parse_source
from reconciler.cache.store import Store
from reconciler.plan.desired import ModelSpec


def gguf_hint(store: Store, spec: ModelSpec) -> str | None:
    """What would help a model that nothing runs in its format, as a clause."""
    prefix = gguf_beside(store, spec)
    return None if prefix is None else f"the hub holds {prefix}: name it as `fallback:`"


def gguf_beside(store: Store, spec: ModelSpec) -> str | None:
    """Another prefix with the GGUF of a model, by its name; None: the hub has none.

    Blocking; raises as the store does.
    """
    address = parse_source(spec.source, spec.file, spec.format)
    if isinstance(address, LocalAddress):
        return None
    name = address.prefix.partition("/")[2].partition("@")[0]
    candidates = (f"gguf/{name}", f"gguf/{name}-GGUF")
    others = (prefix for prefix in candidates if prefix != address.prefix)
    return next((prefix for prefix in others if store.objects(prefix)), None)
