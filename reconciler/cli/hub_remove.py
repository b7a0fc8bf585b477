"""`xgen-model hub rm` and `hub gc`: giving room back."""

import sys
import time
from typing import Annotated

import typer

from reconciler.cli.checks.finding import size
from reconciler.cli.exits import ExitCode
from reconciler.cli.hub_place import HubOption, PrefixArgument, count, existing_state, opened
from reconciler.cli.output import Output, OutputOption, complain, print_json, remark
from reconciler.errors import Rejected, XgenError
from reconciler.hub.gc import Policy, Sweep, clean, sweep
from reconciler.hub.nested import OtherHub, hub_inside
from reconciler.hub.prefix_state import PrefixState, read_state
from reconciler.hub.removal import remove_prefix
from reconciler.hub.writable import WritableHub


def rm(
    prefix: PrefixArgument,
    hub: HubOption,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output: OutputOption = Output.TEXT,
) -> int:
    """Remove a model from the hub, with its old digests. Nodes keep what they have."""
    with opened(hub) as place:
        state = existing_state(place, prefix)
        _check_alone(place, state)
        stored = tuple(state.stored.values())
        freed = sum(each.size_bytes for each in stored)
        what = f"{prefix} in {place.location}: {count(len(stored), 'object')}, {size(freed)}"
        if not yes and not _agreed(what):
            remark("nothing was removed")
            return ExitCode.ERROR
        remove_prefix(place, prefix, stored)
        location = place.location
    if output is Output.JSON:
        print_json(
            {
                "api": 1,
                "hub": location,
                "prefix": prefix,
                "removed": len(stored),
                "freed_bytes": freed,
            }
        )
    else:
        typer.echo(f"removed {what}")
    return ExitCode.OK


def _check_alone(hub: WritableHub, state: PrefixState) -> None:
    """A prefix with a catalog is a model, also where another hub was put into it."""
    inside = hub_inside(hub.location, state.prefix, state.stored)
    if inside is not None:
        raise Rejected(
            f"cannot remove {state.prefix}: models of another hub lie in it; "
            f"remove these first: --hub {inside}"
        )


def _agreed(what: str) -> bool:
    if not sys.stdin.isatty():
        raise typer.BadParameter("nobody can be asked here: say --yes", param_hint="--yes")
    return typer.confirm(f"Remove {what}?", err=True)


def gc(
    hub: HubOption,
    prefix: Annotated[
        str | None, typer.Argument(metavar="[PREFIX]", help="Only this one. [default: all]")
    ] = None,
    keep: Annotated[
        int, typer.Option(metavar="N", min=1, help="How many pushes of a model stay pullable.")
    ] = 3,
    keep_digest: Annotated[
        list[str] | None,
        typer.Option(metavar="DIGEST", help="One more that stays, as manifests pin it; repeat."),
    ] = None,
    min_age: Annotated[
        float,
        typer.Option(
            metavar="HOURS", min=0, help="What is younger stays: pushes and pulls may need it."
        ),
    ] = 24.0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would go, remove nothing.")
    ] = False,
    output: OutputOption = Output.TEXT,
) -> int:
    """Remove what only old pushes need, and uploads that were cut off.

    The newest pushes stay, and what was in force within --min-age. What no catalog names was put
    there by other tools, and stays. A model that is being pushed is left alone.
    """
    with opened(hub) as place:
        names = (prefix,) if prefix is not None else place.prefixes()
        states = [existing_state(place, prefix)] if prefix else _states(place, names)
        digests = _whole_digests(states, keep_digest or [])
        policy = Policy(keep=keep, digests=digests, min_age_seconds=min_age * 3600, now=time.time())
        swept, failures = _swept(place, states, policy, dry_run=dry_run)
        location = place.location
    if output is Output.JSON:
        print_json(_json(swept, failures, dry_run=dry_run, location=location))
    else:
        for each in swept:
            _print(each, dry_run=dry_run)
        freed = size(sum(each.size_bytes for each in swept))
        typer.echo(f"would free {freed}" if dry_run else f"freed {freed}")
    for message in failures.values():
        complain(message)
    return ExitCode.ERROR if failures else ExitCode.OK


def _states(hub: WritableHub, names: tuple[str, ...]) -> list[PrefixState]:
    """Without what is another hub's."""
    found = []
    for name in names:
        try:
            found.append(read_state(hub, name))
        except OtherHub as exc:
            remark(f"another hub lies in this one, and stays as it is: --hub {exc.hub}")
    return found


def _whole_digests(states: list[PrefixState], written: list[str]) -> frozenset[str]:
    """Each must be there: a typing mistake would remove what somebody pinned."""
    known = {each.catalog.digest for state in states for each in state.pushed}
    for digest in written:
        if digest not in known:
            raise Rejected(f"cannot keep digest {digest}: the hub has no catalog of it")
    return frozenset(written)


def _swept(
    hub: WritableHub, states: list[PrefixState], policy: Policy, *, dry_run: bool
) -> tuple[list[Sweep], dict[str, str]]:
    """What went, and why others could not be cleaned, by prefix."""
    swept, failures = [], {}
    for state in states:
        try:
            found = sweep(state, hub.unfinished(state.prefix) or (), policy)
            if not dry_run:
                clean(hub, found, policy)
            swept.append(found)
        except XgenError as exc:
            failures[state.prefix] = str(exc)
    return swept, failures


def _print(each: Sweep, *, dry_run: bool) -> None:
    if each.waits:
        remark(f"{each.prefix}: left as it is: {each.waits}")
    if each.files or each.catalogs or each.unfinished:
        verb = "would remove" if dry_run else "removed"
        parts = [f"{count(len(each.files), 'object')} ({size(each.size_bytes)})"]
        parts += [f"the push {digest}" for digest in each.digests]
        if each.unfinished:
            parts.append(f"{count(len(each.unfinished), 'upload')} cut off")
        typer.echo(f"{each.prefix}: {verb} {', '.join(parts)}")
    if each.foreign:
        remark(f"{each.prefix}: {count(each.foreign, 'file')} that no catalog names: left alone")


def _json(
    swept: list[Sweep], failures: dict[str, str], *, dry_run: bool, location: str
) -> dict[str, object]:
    return {
        "api": 1,
        "hub": location,
        "dry_run": dry_run,
        "freed_bytes": sum(each.size_bytes for each in swept),
        "models": [
            {
                "prefix": each.prefix,
                "objects": [stored.key for stored in each.files],
                "digests": list(each.digests),
                "unfinished": [upload.key for upload in each.unfinished],
                "foreign_files": each.foreign,
                "freed_bytes": each.size_bytes,
                "waits": each.waits or None,
            }
            for each in swept
        ],
        "errors": [{"prefix": name, "message": said} for name, said in failures.items()],
    }
