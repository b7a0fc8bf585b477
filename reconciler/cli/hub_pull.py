"""`xgen-model hub pull`: a prefix of the hub becomes a folder, to be carried or used elsewhere."""

import shlex
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from reconciler.cache.choose import Wish, choose_for_import
from reconciler.cache.export import Export, Exported
from reconciler.cache.listing import listed
from reconciler.cache.record import RecordedObject
from reconciler.cache.stamps import Proof, proof_of
from reconciler.cli.checks.finding import size
from reconciler.cli.hub_place import (
    HubOption,
    PrefixArgument,
    catalog_of,
    count,
    existing_state,
    opened,
    readable,
)
from reconciler.cli.hub_progress import Told, saying_what_holds
from reconciler.cli.output import Output, OutputOption, print_json, remark
from reconciler.hub.catalog import Catalog
from reconciler.hub.pulled import check_outside_hubs, part_of, save_pulled
from reconciler.plan.desired import Format

_BY = {Proof.SHA256: "SHA-256", Proof.MD5: "MD5", Proof.SIZE: "size alone"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """What is pulled. `whole`: the catalog of the push, None: it has none; `part`: of `items`."""

    prefix: str
    location: str
    whole: Catalog | None
    part: Catalog | None
    items: tuple[RecordedObject, ...]

    @property
    def size_bytes(self) -> int:
        return sum(item.size_bytes for item in self.items)


def pull(
    prefix: PrefixArgument,
    hub: HubOption,
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="DIR", file_okay=False, help="Made where it is not. [default: ./ORG_NAME]"
        ),
    ] = None,
    file: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="One GGUF: with its shards, projectors and texts. [default: all]"
        ),
    ] = None,
    digest: Annotated[
        str | None,
        typer.Option(help="Of an older push, or its beginning. [default: the one in force]"),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace other files that have the model's names.")
    ] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Bring a model's files into DIR, each verified before it has its name.

    What is there already is read and not fetched again, also after a pull that was cut off.
    `hub push DIR PREFIX` puts them into another hub, under the same digest.
    """
    target = (folder or Path(prefix.rpartition("/")[2])).absolute()
    begun = time.monotonic()
    with (
        saying_what_holds("what is whole is kept; the same command brings the rest"),
        Told() as told,
    ):
        told.waiting(f"asking {hub}")
        source = _source(hub, prefix, digest, file)
        check_outside_hubs(target, hub)
        exported = _export(hub, source, target, told, replace=force)
    seconds = time.monotonic() - begun
    if output is Output.JSON:
        print_json(_json(source, exported, target, seconds))
    else:
        typer.echo(_said(source, exported, target, seconds))
        _remark_on(source, exported, target)


def _source(hub: str, prefix: str, digest: str | None, file: str | None) -> _Source:
    with opened(hub) as place:
        whole = catalog_of(existing_state(place, prefix), digest, doing="pull")
        location = place.location
    with readable(hub) as store:
        record = listed(store, prefix, whole.digest if whole is not None else None)
    paths = frozenset(record.sizes)
    if file is not None:
        wish = Wish(where=prefix, file=file, format=Format.GGUF)
        paths = frozenset(choose_for_import(record.sizes, wish))
    return _Source(
        prefix=prefix,
        location=location,
        whole=whole,
        part=part_of(whole, paths) if whole is not None else None,
        items=tuple(item for item in record.objects if item.path in paths),
    )


def _export(hub: str, source: _Source, target: Path, told: Told, *, replace: bool) -> Exported:
    def save_catalog() -> None:
        if source.part is not None:
            save_pulled(target, source.part)

    with readable(hub) as store:
        return Export(store, source.prefix, target, replace=replace).run(
            source.items,
            told,
            on_wait=lambda: remark(f"another pull writes into {target}; waiting for its end"),
            on_done=save_catalog,
        )


def _said(source: _Source, exported: Exported, target: Path, seconds: float) -> str:
    digest = source.part.digest if source.part else "none: it has no catalog"
    lines = [
        f"{source.prefix} of {source.location} in {target}",
        f"  files     {count(len(source.items), 'file')}, {size(source.size_bytes)}",
        f"  verified  {_proofs(source)}",
        f"  digest    {digest}",
    ]
    came = count(len(exported.fetched), "file")
    if exported.fetched:
        here = source.size_bytes - exported.fetched_bytes
        rest = f"; {size(here)} were there" if here else ""
        lines.append(
            f"pulled: fetched {came}, {size(exported.fetched_bytes)}, in {seconds:.1f} s{rest}"
        )
    else:
        lines.append("nothing to do: all of it was there")
    words = shlex.join(["xgen-model", "hub", "push", str(target), source.prefix])
    return "\n".join([*lines, f"into another hub: {words} --hub PLACE"])


def _proofs(source: _Source) -> str:
    counts = Counter(map(proof_of, source.items))
    return ", ".join(f"{counts[proof]} by {how}" for proof, how in _BY.items() if counts[proof])


def _remark_on(source: _Source, exported: Exported, target: Path) -> None:
    if source.whole is None:
        remark(
            f"{source.prefix} is unverified: it has no catalog to compare with; `hub push` writes "
            "one"
        )
    if exported.others:
        remark(
            f"{target} holds {count(len(exported.others), 'file')} beside the model's, which a "
            f"push of it takes too: {exported.others[0]}{' …' if len(exported.others) > 1 else ''}"
        )


def _json(source: _Source, exported: Exported, target: Path, seconds: float) -> dict[str, object]:
    return {
        "api": 1,
        "hub": source.location,
        "prefix": source.prefix,
        "folder": str(target),
        "digest": source.part.digest if source.part else None,
        "prefix_digest": source.whole.digest if source.whole else None,
        "verified": source.whole is not None,
        "size_bytes": source.size_bytes,
        "fetched_bytes": exported.fetched_bytes,
        "present_bytes": source.size_bytes - exported.fetched_bytes,
        "seconds": round(seconds, 3),
        "files": [
            {
                "path": item.path,
                "size_bytes": item.size_bytes,
                "proof": proof_of(item),
                "fetched": item.path in exported.fetched,
            }
            for item in source.items
        ],
        "others": list(exported.others),
    }
