"""The hub that a command of `hub` works on."""

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from reconciler.cache.store import Store
from reconciler.cli.options import hub_location, hub_settings
from reconciler.errors import Rejected
from reconciler.hub.catalog import Catalog
from reconciler.hub.prefix_state import PrefixState, read_state
from reconciler.hub.s3_apart import S3StoreApart
from reconciler.hub.writable import WritableHub
from reconciler.node.hub import make_store, make_writer

HubOption = Annotated[
    str,
    typer.Option(
        "--hub", envvar="XGEN_HUB", metavar="PLACE", help="s3://BUCKET[/BASE] or a directory."
    ),
]

PrefixArgument = Annotated[
    str, typer.Argument(metavar="PREFIX", help="gguf/ORG_NAME or huggingface/ORG_NAME[@REVISION].")
]


def count(number: int, noun: str) -> str:
    """`1 file`, `2 files`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


@contextmanager
def opened(location: str) -> Iterator[WritableHub]:
    hub = make_writer(hub_settings(location), _given(location))
    try:
        yield hub
    finally:
        hub.close()


@contextmanager
def readable(location: str) -> Iterator[Store]:
    """The hub as a node reads it: large objects come by a process of their own."""
    store = make_store(hub_settings(_given(location)))
    assert store is not None
    try:
        yield store
    finally:
        if isinstance(store, S3StoreApart):
            store.close()


def _given(location: str) -> str:
    """Nothing is not the folder that one happens to be in."""
    if not location.strip():
        raise typer.BadParameter("it is empty", param_hint="--hub")
    return hub_location(location)


def existing_state(hub: WritableHub, prefix: str) -> PrefixState:
    """Raises Rejected where the hub has no such prefix."""
    state = read_state(hub, prefix)
    if not state.stored:
        close = difflib.get_close_matches(prefix, hub.prefixes(), n=3, cutoff=0.5)
        nearest = f"; nearest: {', '.join(close)}" if close else ""
        raise Rejected(f"cannot find {prefix}: {hub.location} has none{nearest}")
    return state


def catalog_of(state: PrefixState, digest: str | None, *, doing: str) -> Catalog | None:
    """The catalog in force, or of `digest`, which may be abbreviated; None: it has none.

    Raises Rejected where it is damaged, its push has not ended, or none or several are meant.
    `doing`: the verb for messages.
    """
    cannot = f"cannot {doing} {state.prefix}"
    if digest is not None:
        return _of_digest(state, digest.removeprefix("sha256:").lower(), cannot)
    if state.current is None and state.damaged:
        raise Rejected(f"{cannot}: {next(iter(state.damaged.values()))}")
    if state.current is None and state.pushes:
        raise Rejected(f"{cannot}: its first push is under way, or was cut off; push again")
    return state.current


def _of_digest(state: PrefixState, digest: str, cannot: str) -> Catalog:
    known = {each.catalog.digest: each.catalog for each in state.pushed}
    if state.current is not None:
        known = {state.current.digest: state.current, **known}
    found = [catalog for each, catalog in known.items() if digest and each.startswith(digest)]
    if len(found) == 1:
        return found[0]
    shown = ", ".join([each.digest for each in found] or known) or "no catalog at all"
    if found:
        raise Rejected(f"{cannot}: several of its digests begin with {digest!r}: {shown}")
    raise Rejected(f"{cannot}: it has no catalog of digest {digest!r}; it has {shown}")
