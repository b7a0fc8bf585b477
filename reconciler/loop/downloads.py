"""Which downloads of a plan bring the same files: they come once, and are counted once (PURE)."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace

from reconciler.backend.offer import Offer
from reconciler.cache.address import LocalAddress, parse_source
from reconciler.cache.choose import Wish, wish_of
from reconciler.cache.digests import pinned_digest
from reconciler.errors import XgenError
from reconciler.plan.actions import Action, FetchFiles
from reconciler.plan.changes import Change
from reconciler.plan.desired import ModelSpec
from reconciler.plan.ids import ModelName

Place = tuple[str, Wish]


def place_of(spec: ModelSpec) -> tuple[Place, str | None] | None:
    """What tells one set of files from another, and the digest that is pinned; None: the source
    names no files."""
    try:
        address = parse_source(spec.source, spec.file, spec.format)
        local = isinstance(address, LocalAddress)
        place = address.path if isinstance(address, LocalAddress) else address.prefix
        wish = wish_of(spec, place, address.file)
        return (f"file:{place}" if local else place, wish), pinned_digest(spec)
    except XgenError:
        return None


def files_key(spec: ModelSpec, offer: Offer | None) -> Hashable:
    """The same for the same files: by what the hub offers, else by what is asked for."""
    place = place_of(spec)
    if place is None or offer is None or offer.files_digest is None:
        return place
    (prefix, _), _ = place
    return prefix, offer.files_digest


def told_once(
    changes: Sequence[Change], keys: Mapping[ModelName, Hashable], actions: Iterable[Action]
) -> tuple[Change, ...]:
    """With the download at the model that begins it first; the others name that one. `keys`: of the
    files of each model; None: not known."""
    fetching = {each.model for each in changes if each.fetch}
    begun = [each.model for each in actions if isinstance(each, FetchFiles)]
    first: dict[Hashable, ModelName] = {}
    for name in (*begun, *(each.model for each in changes)):
        key = keys.get(name)
        if key is not None and name in fetching:
            first.setdefault(key, name)
    return tuple(
        replace(each, download_bytes=0, download_with=by)
        if each.fetch and (by := first.get(keys.get(each.model), each.model)) != each.model
        else each
        for each in changes
    )
