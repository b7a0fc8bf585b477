"""`xgen-model hub verify`: whether the hub still holds what was pushed."""

from typing import Annotated

import typer

from reconciler.cli.checks.finding import size
from reconciler.cli.exits import ExitCode
from reconciler.cli.hub_place import (
    HubOption,
    PrefixArgument,
    catalog_of,
    count,
    existing_state,
    opened,
)
from reconciler.cli.hub_progress import Told, saying_what_holds
from reconciler.cli.output import Output, OutputOption, complain, print_json, remark
from reconciler.hub.catalog import Catalog
from reconciler.hub.integrity import BadFile, bad_by_content, bad_by_size
from reconciler.hub.prefix_state import PrefixState
from reconciler.hub.writable import WritableHub


def verify(
    prefix: PrefixArgument,
    hub: HubOption,
    deep: Annotated[
        bool, typer.Option("--deep", help="Read every file and compare its SHA-256.")
    ] = False,
    digest: Annotated[
        str | None, typer.Option(help="Of an older push. [default: the one in force]")
    ] = None,
    output: OutputOption = Output.TEXT,
) -> int:
    """Compare a model's files with its catalog: that they are there, with their sizes.

    Exit 0: as pushed, or nothing to compare with (unverified). 1: files are damaged or missing.
    """
    holds = "nothing was found out or changed; the same command begins anew"
    with saying_what_holds(holds), opened(hub) as place, Told() as told:
        told.waiting(f"asking {hub}")
        state = existing_state(place, prefix)
        catalog = catalog_of(state, digest, doing="verify")
        bad = () if catalog is None else _bad(place, state, catalog, told if deep else None)
        location = place.location
    if output is Output.JSON:
        print_json(_json(state, catalog, bad, deep=deep, location=location))
    elif catalog is None:
        remark(f"{prefix} is unverified: it has no catalog to compare with; `hub push` writes one")
    else:
        for each in bad:
            complain(f"{prefix}/{each.path}: {each.cause}")
        typer.echo(_said(prefix, catalog, bad, deep=deep))
    return ExitCode.ERROR if bad else ExitCode.OK


def _bad(
    hub: WritableHub, state: PrefixState, catalog: Catalog, deep: Told | None
) -> tuple[BadFile, ...]:
    """`deep`: is told of what is read; None: nothing is."""
    bad = bad_by_size(catalog, state)
    if deep is None:
        return bad
    known = {each.path for each in bad}
    rest = tuple(file for file in catalog.files if file.path not in known)
    deep.begin("reading", sum(file.size_bytes for file in rest))
    return (*bad, *bad_by_content(hub, state.prefix, rest, deep.advance))


def _said(prefix: str, catalog: Catalog, bad: tuple[BadFile, ...], *, deep: bool) -> str:
    files = count(len(catalog.files), "file")
    if bad:
        return (
            f"{prefix}: {len(bad)} of {files} damaged (digest {catalog.digest}); "
            "push the same files with --again"
        )
    how = "as pushed, byte for byte" if deep else "all there, with their sizes"
    return f"{prefix}: {files}, {size(catalog.size_bytes)}, digest {catalog.digest}: {how}"


def _json(
    state: PrefixState,
    catalog: Catalog | None,
    bad: tuple[BadFile, ...],
    *,
    deep: bool,
    location: str,
) -> dict[str, object]:
    return {
        "api": 1,
        "hub": location,
        "prefix": state.prefix,
        "verified": catalog is not None,
        "ok": not bad if catalog is not None else None,
        "deep": deep,
        "digest": catalog.digest if catalog else None,
        "files": len(catalog.files) if catalog else len(state.plain),
        "bad": [{"path": each.path, "key": each.key, "cause": each.cause} for each in bad],
    }
