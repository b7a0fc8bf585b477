"""The hub that a command of `hub` works on."""

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from reconciler.cli.options import hub_location, hub_settings
from reconciler.errors import Rejected
from reconciler.hub.prefix_state import PrefixState, read_state
from reconciler.hub.writable import WritableHub
from reconciler.node.hub import make_writer

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
    hub = make_writer(hub_settings(location), hub_location(location))
    try:
        yield hub
    finally:
        hub.close()


def existing_state(hub: WritableHub, prefix: str) -> PrefixState:
    """Raises Rejected where the hub has no such prefix."""
    state = read_state(hub, prefix)
    if not state.stored:
        close = difflib.get_close_matches(prefix, hub.prefixes(), n=3, cutoff=0.5)
        nearest = f"; nearest: {', '.join(close)}" if close else ""
        raise Rejected(f"cannot find {prefix}: {hub.location} has none{nearest}")
    return state
