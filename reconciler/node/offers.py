"""Reads in the hub of which format a model is and how large, before it is fetched."""

from collections.abc import Sequence

from reconciler.backend.model_info import ModelInfo
from reconciler.backend.offer import HubSays, Offer
from reconciler.cache.address import LocalAddress, parse_source
from reconciler.cache.choose import choose, wish_of
from reconciler.cache.digests import pinned_digest
from reconciler.cache.listing import listed
from reconciler.cache.store import Store
from reconciler.errors import XgenError
from reconciler.hub.catalog import CATALOG, LIMIT_BYTES, Facts, catalog_key, parse_catalog
from reconciler.hub.writable import WritableHub
from reconciler.plan.desired import Format, ModelSpec

_NO_FACTS = Facts()


def offer_of(hub: WritableHub | None, store: Store, spec: ModelSpec) -> HubSays:
    """What would be fetched. Blocking; raises as a fetch does.

    `hub`: the same as `store`, for its catalogs.
    """
    return HubSays(spec=spec, offer=_offer(hub, store, spec))


def _offer(hub: WritableHub | None, store: Store, spec: ModelSpec) -> Offer | None:
    """None: the hub has nothing to do with it."""
    address = parse_source(spec.source, spec.file, spec.format)
    if isinstance(address, LocalAddress):
        return None
    pinned = pinned_digest(spec)
    record = listed(store, address.prefix, pinned)
    wish = wish_of(spec, address.prefix, address.file)
    choice = choose(record.sizes, wish, record.main_ref)
    facts = _facts(hub, address.prefix, pinned) if record.is_verified and hub else _NO_FACTS
    return Offer(
        format=choice.format,
        size_bytes=sum(record.sizes[path] for path in choice.paths),
        weights_bytes=_weights(choice.format, choice.paths, record.sizes),
        mmproj=choice.mmproj,
        files_digest=record.digest_of(choice.paths),
        revision=record.digest,
        info=ModelInfo(
            weights_bytes=facts.weights_bytes,
            kv_bytes_per_token=facts.kv_bytes_per_token,
            windows=facts.kv_windows,
            kv_heads=facts.kv_heads,
            context_length=facts.context_length,
        ),
    )


def _facts(hub: WritableHub, prefix: str, digest: str | None) -> Facts:
    """A catalog that cannot be read tells nothing: the fetch says what is the matter."""
    key = CATALOG if digest is None else catalog_key(digest)
    try:
        return parse_catalog(hub.load(prefix, key, LIMIT_BYTES + 1), f"{prefix}/{key}").facts
    except XgenError:
        return _NO_FACTS


def _weights(format: Format, paths: Sequence[str], sizes: dict[str, int]) -> int:
    ending = ".gguf" if format is Format.GGUF else ".safetensors"
    return sum(sizes[path] for path in paths if path.lower().endswith(ending))
