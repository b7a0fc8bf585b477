"""`xgen-model cache gc`: gives the room of what no model needs back."""

from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from reconciler.cache.amounts import human
from reconciler.cache.demand import pinned_by
from reconciler.cache.eviction import Choice, Freed, Stock, all_evictions, choose_evictions
from reconciler.cache.partial import CutOff, remove_others
from reconciler.cache.pins import Pins
from reconciler.cache.record import RecordedObject, load_record
from reconciler.cache.sweep import Order, Swept, sweep
from reconciler.cache.usage import Usage
from reconciler.cli.cache_place import ModelsDir, Place, opened, rfc3339
from reconciler.cli.exits import ExitCode
from reconciler.cli.hub_place import count
from reconciler.cli.options import DataDir, cache_budget
from reconciler.cli.output import Output, OutputOption, complain, print_json, remark
from reconciler.errors import Rejected


def gc(
    budget: Annotated[
        str | None,
        typer.Option(
            envvar="XGEN_CACHE_BUDGET",
            metavar="SIZE",
            help="Until the cache is no larger: 200GiB, 500GB, 80%. [default: the agent's budget]",
        ),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Everything that no model needs, budget or not.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be removed.")
    ] = False,
    data: DataDir = None,
    models_dir: ModelsDir = None,
    output: OutputOption = Output.TEXT,
) -> int:
    """Remove what no model of any agent needs, the least recently used first.

    What models need stays, disabled ones too; so does all that an agent is working on, and what an
    older installation has left in DIGEST.kept. `--all` also removes what downloads that were cut
    off have left, unless a model needs it.

    Exit 0: done. 1: models need more than the budget.
    """
    if not every:
        cache_budget(budget, flag="--budget")  # a word that is none is the first to be told
    place = opened(data, models_dir)
    usage = Usage(place.layout)
    usage.measure()
    before = usage.bytes
    limit = _limit(place, budget, every)
    order = Order(why="`cache gc` was asked for", also_pinned=_known_pins(place), dry=dry_run)
    try:
        swept = sweep(place.layout, place.board, _choice(before, limit), order)
        cut_off = _cut_off(place, swept.pins, dry=dry_run) if every else ()
    except OSError as exc:
        raise Rejected(f"cannot clean {place.layout.models}: {exc.strerror}") from exc
    freed = swept.choice.freed.cache + sum(each.size_bytes for each in cut_off)
    usage.measure()
    used = before - freed if dry_run else usage.bytes
    fits = limit is None or used <= limit
    if output is Output.JSON:
        numbers = {
            "budget_bytes": limit,
            "used_bytes": used,
            "freed_bytes": freed,
            "fits": fits,
        }
        print_json(_json(place, swept, cut_off, dry=dry_run) | numbers)
    else:
        _print(swept, cut_off, dry=dry_run)
        typer.echo(
            f"{'would free' if dry_run else 'freed'} {human(freed)} in {place.layout.models}"
        )
        _remark_on_kept(place, swept)
        if not fits and limit is not None:
            complain(_too_much(place, swept, used, limit))
    return ExitCode.OK if fits else ExitCode.ERROR


def _cut_off(place: Place, pins: Pins, *, dry: bool) -> tuple[CutOff, ...]:
    """What downloads have left that no model needs and nobody goes on with."""
    if not place.layout.partials.is_dir():
        return ()
    needed: list[RecordedObject] = []
    for (prefix, digest), paths in pins.by_revision.items():
        record = load_record(place.layout.record(prefix, digest))
        needed += [item for item in record.objects if item.path in paths] if record else []
    return remove_others(place.layout.partials, needed, dry=dry)


def _limit(place: Place, budget: str | None, every: bool) -> int | None:
    """In bytes; None: everything goes that can."""
    if every:
        return None
    wanted = cache_budget(budget, flag="--budget")
    if wanted is not None:
        return wanted.of(place.disk_bytes())
    said = place.board.said_by_owner()
    if said is None or said.budget_bytes is None:
        raise typer.BadParameter(
            "the agent has no budget: give --budget SIZE, or --all", param_hint="--budget"
        )
    return said.budget_bytes


def _known_pins(place: Place) -> Pins:
    pins = place.pins()
    if pins is None:
        raise Rejected(
            f"cannot clean {place.layout.models}: nothing says which models need it, neither an "
            f"agent nor a manifest in {place.data_dir}; name the agent's data folder with "
            "--data-dir"
        )
    return pins


def _choice(used: int, limit: int | None) -> Callable[[Stock], Choice]:
    """As much as it takes, or as can be: a person wants the most of it."""

    def choose(there: Stock) -> Choice:
        if limit is None:
            return all_evictions(there)
        choice = choose_evictions(there, Freed(cache=max(0, used - limit)))
        return choice if choice.enough else all_evictions(there)

    return choose


def _print(swept: Swept, cut_off: Sequence[CutOff], *, dry: bool) -> None:
    verb = "would remove" if dry else "removed"
    for each in swept.evicted:
        typer.echo(
            f"{verb} {each.prefix} of digest {each.digest[:12]}: {count(each.files, 'file')}, "
            f"{human(each.size_bytes)}, last used {rfc3339(each.last_used)}"
        )
    for item in cut_off:
        what = item.key or "an object without a name"
        typer.echo(f"{verb} {human(item.size_bytes)} of {what}: its download was cut off")


def _remark_on_kept(place: Place, swept: Swept) -> None:
    for item in swept.revisions:
        if item.kept_bytes:
            remark(
                f"{place.layout.kept(item.prefix, item.digest)} stays: {human(item.kept_bytes)} of "
                "an older installation that the hub does not have; remove it yourself"
            )


def _too_much(place: Place, swept: Swept, used: int, limit: int) -> str:
    by = sorted(pinned_by(swept.revisions, swept.pins).items(), key=lambda each: -each[1])
    models = ", ".join(f"{model} ({human(size)})" for model, size in by)
    said = f"cannot make {place.layout.models} fit {human(limit)}: {human(used)} are left"
    return f"{said}, pinned by {models}" if models else said


def _json(place: Place, swept: Swept, cut_off: Sequence[CutOff], *, dry: bool) -> dict[str, object]:
    return {
        "api": 1,
        "models_dir": str(place.layout.models),
        "dry_run": dry,
        "removed": [
            {
                "prefix": each.prefix,
                "digest": each.digest,
                "files": each.files,
                "size_bytes": each.size_bytes,
                "last_used": rfc3339(each.last_used),
            }
            for each in swept.evicted
        ],
        "cut_off": [{"object": each.key, "size_bytes": each.size_bytes} for each in cut_off],
        "kept": [
            {"path": str(place.layout.kept(item.prefix, item.digest)), "bytes": item.kept_bytes}
            for item in swept.revisions
            if item.kept_bytes
        ],
        "pinned_by": pinned_by(swept.revisions, swept.pins),
    }
