"""`xgen-model hub push`: a folder becomes a prefix of the hub."""

import os
import re
import time
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from reconciler.cache.names import check_paths
from reconciler.cli.checks.finding import size
from reconciler.cli.hub_place import HubOption, PrefixArgument, count, opened
from reconciler.cli.hub_progress import Told, saying_what_holds
from reconciler.cli.output import Output, OutputOption, print_json, remark
from reconciler.errors import Rejected
from reconciler.hub.catalog import Catalog, Facts
from reconciler.hub.pulled import pulled_catalog
from reconciler.hub.push import Order, Outcome
from reconciler.hub.push import push as push_folder
from reconciler.node.describe import describe
from reconciler.node.zeros import check_no_zeros

_UPSTREAM = re.compile(r"[^/\s]+/[^/\s]+")


def push(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", exists=True, file_okay=False, help="The files.")
    ],
    prefix: PrefixArgument,
    hub: HubOption,
    licence: Annotated[
        str | None, typer.Option(help="The model's licence. [default: as it was]")
    ] = None,
    upstream: Annotated[
        str | None,
        typer.Option(metavar="ORG/NAME", help="Where it came from. [default: as it was]"),
    ] = None,
    revision: Annotated[
        str | None, typer.Option(metavar="REV", help="Its revision there; needs --upstream.")
    ] = None,
    again: Annotated[
        bool, typer.Option("--again", help="Upload also what is there: it may be damaged.")
    ] = False,
    allow_zeros: Annotated[
        bool, typer.Option("--allow-zeros", help="Push weights that end in zeros, too.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be uploaded, change nothing.")
    ] = False,
    output: OutputOption = Output.TEXT,
) -> None:
    """Upload the files of DIR, then a catalog with their digests.

    What is there already is not uploaded again, also after a push that was cut off. Nothing is
    overwritten: older digests can be pulled until `hub gc`. Hidden names stay out; links are
    followed inside DIR. What `hub pull` brought keeps its licence, upstream and revision.
    """
    if revision is not None and upstream is None:
        raise typer.BadParameter("it needs --upstream", param_hint="--revision")
    _check_words(licence=licence, upstream=upstream, revision=revision)
    _check_outside(folder, hub)
    order = Order(
        folder=folder,
        prefix=prefix,
        pushed_at=datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        check_names=partial(check_paths, doing="push"),
        describe=lambda files: describe(files, str(folder)),
        check_content=(lambda _hashed: None) if allow_zeros else check_no_zeros,
        licence=licence,
        upstream=upstream,
        revision=revision,
        again=again,
        dry_run=dry_run,
        pulled=pulled_catalog(folder),
    )
    begun = time.monotonic()
    holds = "nothing of this push is in force; the same command sends what did not arrive whole"
    with saying_what_holds(holds), opened(hub) as place, Told() as told:
        told.waiting(f"asking {hub}")
        outcome = push_folder(place, order, told)
        location = place.location
    if output is Output.JSON:
        print_json(_json(outcome, order, location))
    else:
        typer.echo(_said(outcome, order, location, time.monotonic() - begun))
    if order.pulled is not None and order.pulled.digest != outcome.catalog.digest:
        _remark_on(order, order.pulled)


def _check_words(**words: str | None) -> None:
    """Each is one line, as people and other programs read it."""
    for name, word in words.items():
        if word is not None and (not word.strip() or not word.isprintable()):
            raise typer.BadParameter(f"{word!r} is not one line", param_hint=f"--{name}")
    upstream = words["upstream"]
    if upstream is not None and not _UPSTREAM.fullmatch(upstream):
        raise typer.BadParameter(f"{upstream!r} is not ORG/NAME", param_hint="--upstream")


def _check_outside(folder: Path, hub: str) -> None:
    """A hub is no model of its own."""
    if "://" not in hub and os.path.realpath(hub) == os.path.realpath(folder):
        raise Rejected(f"cannot push {folder}: it is the hub itself; name a model's folder")


def _remark_on(order: Order, pulled: Catalog) -> None:
    """The files are others than those that the catalog beside them speaks of."""
    said = {
        "--licence": (order.licence, pulled.licence),
        "--upstream": (order.upstream, pulled.upstream.repository if pulled.upstream else None),
    }
    lost = [f"{flag} {was}" for flag, (now, was) in said.items() if was is not None and now is None]
    if lost:
        remark(
            f"{order.folder} holds other files than when it was pulled: what the hub said of it "
            f"then was not taken over; say it if it holds: {' '.join(lost)}"
        )


def _said(outcome: Outcome, order: Order, location: str, seconds: float) -> str:
    catalog = outcome.catalog
    files = count(len(catalog.files), "file")
    lines = [f"{order.prefix} in {location}", f"  files     {files}, {size(catalog.size_bytes)}"]
    lines.append(f"  model     {_model(catalog.facts)}")
    lines.append(f"  digest    {catalog.digest}")
    if outcome.before not in (None, catalog.digest):
        lines.append(f"  before    {outcome.before}")
    if not outcome.is_new:
        return "\n".join([*lines, "nothing to do: the hub holds just this"])
    sent = f"{len(outcome.uploaded)} of {files}, {size(outcome.uploaded_bytes)}"
    if order.dry_run:
        return "\n".join([*lines, *(f"  + {path}" for path in outcome.uploaded),
                          f"would upload {sent}, and write a new catalog"])  # fmt: skip
    return "\n".join([*lines, f"pushed: uploaded {sent}, in {seconds:.1f} s"])


def _model(facts: Facts) -> str:
    weights, context = facts.weights_bytes, facts.context_length
    return "; ".join(
        (
            facts.format or "format not known",
            "weights not known" if weights is None else f"weights {size(weights)}",
            _cache(facts),
            "context not known" if context is None else f"context {context} tokens",
        )
    )


def _cache(facts: Facts) -> str:
    if facts.kv_bytes_per_token is not None:
        return f"KV cache {size(facts.kv_bytes_per_token)} a token"
    windows = facts.kv_windows
    if windows is None:
        return "KV cache not known"
    return (
        f"KV cache {size(windows.full_bytes)} a token, and {size(windows.windowed_bytes)} of the "
        f"last {windows.window_tokens}"
    )


def _json(outcome: Outcome, order: Order, location: str) -> dict[str, object]:
    catalog = outcome.catalog
    new = set(outcome.uploaded)
    return {
        "api": 1,
        "hub": location,
        "prefix": order.prefix,
        "dry_run": order.dry_run,
        "changed": outcome.is_new,
        "digest": catalog.digest,
        "digest_before": outcome.before,
        "format": catalog.facts.format,
        "weights_bytes": catalog.facts.weights_bytes,
        "kv_bytes_per_token": catalog.facts.kv_bytes_per_token,
        "kv_windows": asdict(catalog.facts.kv_windows) if catalog.facts.kv_windows else None,
        "kv_heads": catalog.facts.kv_heads,
        "context_length": catalog.facts.context_length,
        "licence": catalog.licence,
        "upstream": catalog.upstream.repository if catalog.upstream else None,
        "revision": catalog.upstream.revision if catalog.upstream else None,
        "size_bytes": catalog.size_bytes,
        "uploaded_bytes": outcome.uploaded_bytes,
        "files": [
            {
                "path": file.path,
                "size_bytes": file.size_bytes,
                "sha256": file.sha256,
                "uploaded": file.path in new,
            }
            for file in catalog.files
        ],
    }
