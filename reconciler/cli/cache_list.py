"""`xgen-model cache list`: what is cached, what needs it, and how well it is known."""

import os
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from reconciler.cache.amounts import human
from reconciler.cache.eviction import Inode
from reconciler.cache.inventory import LastUses, StoredRevision, inventory, last_used
from reconciler.cache.pins import Pins
from reconciler.cache.stamps import Proof, Stamp, load_stamps
from reconciler.cache.usage import Usage
from reconciler.cli.cache_place import ModelsDir, Place, of_prefix, opened, rfc3339
from reconciler.cli.options import DataDir
from reconciler.cli.output import Output, OutputOption, console, print_json, remark, show
from reconciler.cli.table import Column, table

_COLUMNS = (
    Column(title="PREFIX"),
    Column(title="DIGEST", rank=3),
    Column(title="FILES", rank=5),
    Column(title="SIZE", rank=1),
    Column(title="SHARED", rank=6),
    Column(title="PINNED BY", rank=2),
    Column(title="LAST USED", rank=4),
    Column(title="VERIFIED"),
)
_COLOURS = {"changed": "yellow", "damaged": "red", "incomplete": "yellow"}
_SHORT = 12
_WORST = (Proof.NONE, Proof.SIZE, Proof.MD5, Proof.SHA256)


def list_revisions(
    prefix: Annotated[
        str | None, typer.Argument(metavar="[PREFIX]", help="Only this one. [default: all]")
    ] = None,
    data: DataDir = None,
    models_dir: ModelsDir = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show every revision in the cache.

    verified: sha256, md5 or size, by what its files were compared with; changed: a file looks
    otherwise than it did then, and is read before it is served; incomplete: files are missing;
    kept: only what an older installation had and the hub does not, which is never removed.
    """
    place = opened(data, models_dir)
    every = inventory(place.layout)
    pins, uses = place.pins(), place.board.last_uses()
    shared = Counter(inode for item in every for inode in item.inodes)
    rows = [
        _row(place, item, pins or Pins(), uses, shared)
        for item in of_prefix(every, prefix, place.layout.models)
    ]
    if output is Output.JSON:
        print_json(_totals(place) | {"revisions": rows})
        return
    _print(place, rows)
    if pins is None and rows:
        remark(
            f"nothing says which models need this: no agent has, and {place.data_dir} keeps no "
            "manifest"
        )


def _print(place: Place, rows: Sequence[dict[str, object]]) -> None:
    out = console()
    if not rows:
        remark(f"{place.layout.models} holds no model")
        return
    show(out, table(_COLUMNS, [_cells(row) for row in rows], width=out.width))
    totals = _totals(place)
    budget = totals["budget_bytes"]
    limit = f" of {human(float(str(budget)))}" if budget is not None else ""
    free = human(float(str(totals["free_bytes"])))
    show(out, Text(f"\n{human(float(str(totals['used_bytes'])))}{limit} used, {free} free"))


def _totals(place: Place) -> dict[str, object]:
    usage = Usage(place.layout)
    usage.measure()
    said = place.board.said_by_owner()
    return {
        "api": 1,
        "models_dir": os.fspath(place.layout.models),
        "used_bytes": usage.bytes,
        "budget_bytes": said.budget_bytes if said is not None else None,
        "free_bytes": shutil.disk_usage(place.layout.models).free,
    }


def _row(
    place: Place,
    item: StoredRevision,
    pins: Pins,
    uses: LastUses,
    names: Counter[Inode],
) -> dict[str, object]:
    pinned_by = sorted(pins.of_revision(item.prefix, item.digest))
    at = max((last_used(item, file.path, uses) for file in item.files), default=item.written_at)
    state, proof, checked_at = _known(place, item)
    return {
        "prefix": item.prefix,
        "digest": item.digest,
        "linked": item.linked,
        "files": len(item.files),
        "size_bytes": item.size_bytes,
        "shared_bytes": sum(size for inode, size in item.inodes.items() if names[inode] > 1),
        "kept_bytes": item.kept_bytes,
        "pinned_by": pinned_by,
        "last_used": rfc3339(time.time() if pinned_by else at),
        "state": state,
        "verified": proof,
        "verified_at": rfc3339(checked_at) if checked_at is not None else None,
    }


def _known(place: Place, item: StoredRevision) -> tuple[str, str | None, float | None]:
    """Its state, the weakest proof of a file, and when the first one was proven."""
    if item.record is None:
        return "kept" if item.is_only_kept else "damaged", None, None
    stamps = load_stamps(place.layout.stamps(item.prefix, item.digest))
    folder = place.layout.folder(item.prefix, item.digest)
    known: list[Stamp] = []
    state = "whole" if item.record.present else "incomplete"
    for path in sorted(item.record.present):
        try:
            status = os.stat(folder / path)
        except OSError:
            return "incomplete", None, None
        stamp = stamps.get(path)
        if stamp is None or not stamp.is_of(status):
            state = "changed" if stamp is not None else state
        else:
            known.append(stamp)
    if not known or state != "whole":
        return state, None, None
    proof = min((stamp.proof for stamp in known), key=_WORST.index)
    return state, proof.value, min(stamp.at for stamp in known)


def _cells(row: dict[str, object]) -> list[Text]:
    pinned_by = row["pinned_by"]
    models = ", ".join(pinned_by) if isinstance(pinned_by, list) else ""
    state = str(row["state"])
    shown = str(row["verified"] or "-") if state == "whole" else state
    return [
        Text(str(row["prefix"]), style="bold"),
        Text(str(row["digest"])[:_SHORT]),
        Text(str(row["files"])),
        Text(human(int(str(row["size_bytes"])))),
        Text(human(int(str(row["shared_bytes"])))),
        Text(models or "-"),
        Text("now" if models else str(row["last_used"])),
        Text(shown, style=_COLOURS.get(state, "")),
    ]
