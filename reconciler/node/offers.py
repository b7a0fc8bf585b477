"""Reads in the hub of which format a model is and how large, before it is fetched."""

from collections.abc import Sequence

from reconciler.backend.model_info import ModelInfo
from reconciler.backend.offer import HubSays, Offer
from reconciler.cache.address import LocalAddress, parse_source
from reconciler.cache.choose import Choice, Undecided, choose, wish_of
from reconciler.cache.digests import pinned_digest
from reconciler.cache.listing import Absent, listed
from reconciler.cache.record import Record
from reconciler.cache.store import Store
from reconciler.errors import BadCatalog, Gone, Rejected, Transient, XgenError
from reconciler.hub.catalog import CATALOG, LIMIT_BYTES, Facts, catalog_key, parse_catalog
from reconciler.hub.writable import WritableHub
from reconciler.plan.desired import Format, ModelSpec
from reconciler.plan.repository import SCHEME

_NO_FACTS = Facts()


def offer_of(hub: WritableHub | None, store: Store, spec: ModelSpec) -> HubSays:
    """What would be fetched, or why nothing could be. Blocking; raises Transient where the hub does
    not answer.

    `hub`: the same as `store`, for its catalogs.
    """
    try:
        address = parse_source(spec.source, spec.file, spec.format)
        if isinstance(address, LocalAddress):
            return HubSays(spec=spec)  # the hub has nothing to do with it
        record = listed(store, address.prefix, pinned_digest(spec))
    except (Absent, Gone, BadCatalog, Rejected) as exc:
        return _nothing(spec, exc)
    wish = wish_of(spec, address.prefix, address.file)
    try:
        choice = choose(record.sizes, wish, record.main_ref)
    except (Transient, Rejected) as exc:
        return _nothing(spec, exc)
    return HubSays(spec=spec, offer=_offer(hub, address.prefix, spec, record, choice))


def _nothing(spec: ModelSpec, why: XgenError) -> HubSays:
    """What a repository has, and the hub has not, is imported by the fetch."""
    imported = spec.source.startswith(SCHEME) and not isinstance(why, Undecided | Rejected)
    if imported:
        return HubSays(spec=spec)
    return HubSays(spec=spec, missing=str(why), is_final=isinstance(why, Rejected))


def _offer(
    hub: WritableHub | None, prefix: str, spec: ModelSpec, record: Record, choice: Choice
) -> Offer:
    pinned = pinned_digest(spec)
    facts = _facts(hub, prefix, pinned) if record.is_verified and hub else _NO_FACTS
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
