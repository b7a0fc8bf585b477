"""`xgen-model hub list`: what the hub holds."""

from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

import typer
from rich.text import Text

from reconciler.cache.choose import Wish, choose
from reconciler.cli.checks.finding import size
from reconciler.cli.hub_place import HubOption, existing_state, opened
from reconciler.cli.output import Output, OutputOption, console, print_json, remark, show
from reconciler.cli.table import Column, table
from reconciler.errors import XgenError
from reconciler.hub.prefix_state import PrefixState, read_state

_AT_ONCE = 8
_COLUMNS = (
    Column(title="PREFIX"),
    Column(title="FORMAT", rank=2),
    Column(title="SIZE", rank=1),
    Column(title="FILES", rank=3),
    Column(title="STATE"),
    Column(title="LICENCE", rank=5),
    Column(title="DIGEST", rank=4),
)
_COLOURS = {"verified": "green", "damaged": "red", "incomplete": "yellow"}
_SHORT = 12


def list_prefixes(
    hub: HubOption,
    prefix: Annotated[
        str | None, typer.Argument(metavar="[PREFIX]", help="Only this one. [default: all]")
    ] = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show every model of the hub.

    verified: it has a catalog. unverified: pushed by another tool, without one. incomplete: its
    first push is under way, or was cut off. damaged: its catalog cannot be read.
    """
    with opened(hub) as place:
        if prefix is not None:
            rows = [_row(existing_state(place, prefix))]
        else:
            names = place.prefixes()
            with ThreadPoolExecutor(_AT_ONCE) as pool:
                rows = list(pool.map(lambda name: _row(read_state(place, name)), names))
        location = place.location
    if output is Output.JSON:
        print_json({"api": 1, "hub": location, "models": rows})
        return
    out = console()
    if rows:
        show(out, table(_COLUMNS, [_cells(row) for row in rows], width=out.width))
    else:
        remark(f"{location} holds no model")
    for row in rows:
        if row["reason"]:
            remark(f"{row['prefix']}: {row['reason']}")


def _row(state: PrefixState) -> dict[str, object]:
    catalog = state.current
    plain = {each.key: each.size_bytes for each in state.plain}
    found: dict[str, object] = {
        "prefix": state.prefix,
        "state": "verified",
        "verified": catalog is not None,
        "reason": None,
        "format": None,
        "size_bytes": sum(plain.values()),
        "stored_bytes": sum(each.size_bytes for each in state.stored.values()),
        "files": len(plain),
        "digest": None,
        "digests": [each.catalog.digest for each in state.pushed],
        "pushed_at": None,
        "licence": None,
        "upstream": None,
        "revision": None,
    }
    if catalog is not None:
        upstream = catalog.upstream
        return found | {
            "format": catalog.facts.format,
            "size_bytes": catalog.size_bytes,
            "files": len(catalog.files),
            "digest": catalog.digest,
            "pushed_at": catalog.pushed_at,
            "licence": catalog.licence,
            "upstream": upstream.repository if upstream else None,
            "revision": upstream.revision if upstream else None,
        }
    if state.damaged:
        return found | {"state": "damaged", "reason": next(iter(state.damaged.values()))}
    if state.pushes or not plain:
        reason = "its first push is under way, or was cut off; push again, or remove it"
        return found | {"state": "incomplete", "reason": reason}
    return found | {"state": "unverified"} | _judged(state.prefix, plain)


def _judged(prefix: str, sizes: dict[str, int]) -> dict[str, object]:
    try:
        return {"format": str(choose(sizes, Wish(where=prefix)).format)}
    except XgenError as exc:
        return {"reason": str(exc)}


def _cells(row: dict[str, object]) -> list[Text]:
    digest = str(row["digest"])[:_SHORT] if row["digest"] else "-"
    state = str(row["state"])
    return [
        Text(str(row["prefix"]), style="bold"),
        Text(str(row["format"] or "-")),
        Text(size(int(str(row["size_bytes"])))),
        Text(str(row["files"])),
        Text(state, style=_COLOURS.get(state, "")),
        Text(str(row["licence"] or "-")),
        Text(digest),
    ]
