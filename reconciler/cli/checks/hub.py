"""The hub: whether it answers, and whether it holds what the manifest names."""

import difflib
import os
from collections.abc import Iterator, Mapping

from reconciler.cache.address import LocalAddress, parse_source
from reconciler.cache.choose import choose, wish_of
from reconciler.cache.digests import pinned_digest
from reconciler.cli.checks.finding import Finding, fail, ok, size, skip
from reconciler.errors import BadCatalog, Rejected, XgenError
from reconciler.hub.credentials import find_keys
from reconciler.hub.directory import DirectoryStore
from reconciler.hub.huggingface_site import VARIABLE, site_of
from reconciler.hub.s3_apart import S3StoreApart
from reconciler.node.hub import make_store
from reconciler.plan.desired import Desired, DesiredModel
from reconciler.settings import HubSettings

_Store = S3StoreApart | DirectoryStore


def hub_findings(hub: HubSettings, desired: Desired | None) -> Iterator[Finding]:
    models = [model for model in desired.models if model.enabled] if desired else []
    store: _Store | None = None
    prefixes: tuple[str, ...] = ()
    try:
        store = make_store(hub)
        if store is None:
            yield skip("hub", "none is given: only cached models can start", "give --hub")
        else:
            if hub.location and hub.location.startswith("s3://"):
                yield ok("hub keys", _keys(hub))
            prefixes = store.prefixes()
            many = "prefix" if len(prefixes) == 1 else "prefixes"
            yield ok("hub", f"{store.location} answers, and holds {len(prefixes)} {many}")
    except XgenError as exc:
        store = None
        yield fail("hub", str(exc), "correct --hub, its endpoint or its keys, or the network")
    for model in models:
        finding = _files(model, store, prefixes)
        if finding is not None:
            yield finding


def mirror_findings(environment: Mapping[str, str]) -> Iterator[Finding]:
    """Of Hugging Face; nothing where imports can ask it."""
    try:
        site_of(environment)
    except Rejected as exc:
        yield fail("hugging face", str(exc), f"correct {VARIABLE}")


def _keys(hub: HubSettings) -> str:
    """Where they stand, never what they are."""
    keys = find_keys(hub.variables)
    return keys.names.together if keys else "none are set: requests are anonymous"


def _files(model: DesiredModel, store: _Store | None, prefixes: tuple[str, ...]) -> Finding | None:
    """None: there is nobody to ask."""
    subject = f"files of {model.name}"
    try:
        address = parse_source(model.spec.source, model.spec.file, model.spec.format)
        if isinstance(address, LocalAddress):
            return _local(subject, address)
        if store is None:
            return None
        objects = store.objects(address.prefix, pinned_digest(model.spec))
        sizes = {item.path: item.size_bytes for item in objects}
        if not sizes and address.repository is not None:
            return ok(subject, f"{address.prefix}: the hub has none; it will be imported there")
        if not sizes:
            return _absent(subject, address.prefix, prefixes)
        if not any(path.startswith("refs/") for path in sizes):
            wish = wish_of(model.spec, address.prefix, address.file)
            chosen = choose(sizes, wish).paths
            sizes = {path: sizes[path] for path in chosen if path in sizes}
    except BadCatalog as exc:
        return fail(subject, str(exc), "push its files again: xgen-model hub push DIR PREFIX")
    except XgenError as exc:
        return fail(subject, str(exc), "correct the manifest, or push the files to the hub")
    count = f"{len(sizes)} file{'' if len(sizes) == 1 else 's'}"
    return ok(subject, f"{address.prefix}: {count}, {size(sum(sizes.values()))}")


def _absent(subject: str, prefix: str, prefixes: tuple[str, ...]) -> Finding:
    close = difflib.get_close_matches(prefix, prefixes, n=3, cutoff=0.5)
    near = f"the nearest it has: {', '.join(close)}" if close else "push the model to the hub"
    return fail(subject, f"the hub has no {prefix}", near)


def _local(subject: str, address: LocalAddress) -> Finding:
    if os.path.exists(address.path):
        return ok(subject, f"{address.path} is there")
    step = "correct the path, or mount it"
    return fail(subject, f"there is no {address.path} that can be seen on this node", step)
