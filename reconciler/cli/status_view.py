"""The status as it is shown to people: a table of models, and below it what is amiss."""

from collections.abc import Iterable, Iterator
from datetime import datetime

from rich.console import Group, RenderableType
from rich.text import Text

from reconciler.cache.amounts import human
from reconciler.cli import cluster_view
from reconciler.cli.agent_view import crashes, why_none_is_left
from reconciler.cli.client import Json
from reconciler.cli.cluster_view import called, is_there, told_apart
from reconciler.cli.condition_view import every, short
from reconciler.cli.table import Column, table
from reconciler.plan.gpu_mode import GpuMode
from reconciler.plan.wording import span
from reconciler.status import DriftKind

_COLUMNS = (
    Column(title="NODE"),
    Column(title="MODEL"),
    Column(title="STATE"),
    Column(title="TYPE", rank=3),
    Column(title="BACKEND", rank=2),
    Column(title="PID", rank=4),
    Column(title="BUSY", rank=5),
    Column(title="REASON", prose=True),
)
_COLOURS = {"loaded": "green", "error": "red", "blocked": "red", "disabled": "dim"}
_LAST_LINES = 8
_NOWHERE = 20
"""Models that are named one by one."""
_OLD_SECONDS = 30.0
"""Twice what the loop lets pass between two ticks."""
TAKES = "takes requests"


def render(view: Json, *, width: int, verbose: bool = False) -> RenderableType:
    """The nodes, and one table over all of them; a lone node is named above it instead. `verbose`:
    with all of their conditions, else with what is not fine."""
    servers = told_apart(view["servers"])
    lone = len(servers) == 1
    columns = _COLUMNS[1:] if lone else _COLUMNS
    rows = [_row(server, model) for server in servers for model in server.get("models", ())]
    parts: list[RenderableType] = (
        [_heading(servers[0])] if lone else [cluster_view.nodes(servers, width=width), Text()]
    )
    if rows:
        parts.append(table(columns, [row[-len(columns) :] for row in rows], width=width))
    else:
        where = "here" if lone else "at any node"
        parts.append(Text(f"no model is selected {where}", style="dim"))
    if not lone:
        parts += list(_nowhere(view))
    parts += [line for server in servers for line in _engines(server)]
    for server in servers:
        if is_there(server):
            parts += _notes(server, verbose=verbose, lone=lone)
        elif lone:
            why = f"\n{called(server)} cannot be reached: {server.get('reason')}"
            parts.append(Text(f"{why}; its models are as they were seen last", style="red"))
    return Group(*parts)


def readiness(server: Json) -> str:
    """Of `/readyz`, in a word or four: whether all is as wanted say its conditions. An agent that
    drains still answers, and refuses new work."""
    draining = {"type": "Draining", "status": "True"}.items()
    if any(draining <= condition.items() for condition in server.get("conditions", ())):
        return "draining"
    return TAKES if server.get("ready") else "takes no requests yet"


def _heading(server: Json) -> Text:
    said = [
        f"agent {server.get('agent_version') or 'of an unknown version'}",
        _manifest(server.get("revision") or {}),
        readiness(server),
        *_gpus(server.get("gpu") or {}),
    ]
    return Text.assemble((str(server.get("node")), "bold"), f"  {', '.join(said)}\n")


def _manifest(revision: Json) -> str:
    """The one in force, and the newest one where that was not taken whole."""
    applied, newest = revision.get("applied"), revision.get("attempted")
    said = f"manifest {applied[:12]}" if applied else "no manifest yet"
    return said if newest in (None, applied) else f"{said} (not taken: {newest[:12]})"


def _gpus(gpu: Json) -> Iterator[str]:
    """How many can be used, and their memory where it is told of all of them."""
    count, given = gpu.get("count"), gpu.get("mode") == GpuMode.PLUGIN
    if not count:
        yield from ["no GPU from a device plugin"] if given else []
        return
    origin = " from a device plugin" if given else ""
    said = f"{count} GPU{'' if count == 1 else 's'}{origin} ({gpu.get('type')})"
    usable = [device for device in gpu.get("devices", ()) if not device.get("problem")]
    free = [device.get("memory_free_bytes") for device in usable]
    total = [device.get("memory_total_bytes") for device in usable]
    if None not in (*free, *total):
        said += f", {human(sum(free))} of {human(sum(total))} free"
    yield said


def _nowhere(view: Json) -> Iterator[Text]:
    found = sorted(cluster_view.nowhere(view["servers"], view.get("self_node")).items())
    for name, reason in found[:_NOWHERE]:
        yield Text(f"{name} is in the manifest, and runs at no node: {reason}", style="yellow")
    if len(found) > _NOWHERE:
        yield Text(f"and {len(found) - _NOWHERE} more that run at no node", style="yellow")


def _engines(server: Json) -> Iterator[Text]:
    """Builds that have a name. What cannot be used is told as a condition."""
    said = [
        f"{each['name']} is {each['id']} {each.get('version') or 'of an unknown version'}"
        for each in server.get("engines") or ()
        if each.get("name") and not each.get("problem")
    ]
    if said:
        yield Text(f"\nengines of {server.get('node')}: {', '.join(said)}", style="dim")


def _row(server: Json, model: Json) -> list[Text]:
    name = Text(str(model["name"]))
    if aliases := model.get("aliases"):
        name.append(f" ({', '.join(aliases)})", style="dim")
    state = str(model.get("state"))
    shown = Text(f"{state}{_percent(model)}", style=_COLOURS.get(state, "yellow"))
    if model.get("as_last_seen"):
        shown = Text(f"{state}, last seen", style="dim")
    return [
        Text(str(server.get("node"))),
        name,
        shown,
        Text(str(model.get("model_type") or "-")),
        Text(_backend(model)),
        Text(str(model.get("pid") or "-")),
        Text(str(model.get("in_flight", "-"))),
        Text(_reason(model)),
    ]


def _backend(model: Json) -> str:
    name = (model.get("engine") or {}).get("name")
    backend = str(model.get("backend") or "-")
    return backend if name is None else f"{name} ({backend})"


def _reason(model: Json) -> str:
    reason = str(model.get("reason", ""))
    if target := model.get("target"):
        reason += f"; coming: {target.get('state')}, {target.get('reason')}"
    return "; ".join([reason, *map(_draining, model.get("draining", ()))])


def _draining(process: Json) -> str:
    """A process beside the one that serves; `since` on the clock of whoever reads it."""
    pid, since = process.get("pid"), process.get("since")
    at = ""
    if since is not None:
        at = f" since {datetime.fromisoformat(str(since)).astimezone().strftime('%H:%M:%S')}"
    if process.get("loads"):
        return f"pid {pid}, which was to take its place, {'is stopped' if at else 'is to stop'}{at}"
    count = process.get("in_flight", 0)
    busy = f"{count} request{'' if count == 1 else 's'} in flight"
    return f"pid {pid} {'drains' if at else 'is to drain'}{at}: {busy}"


def _percent(model: Json) -> str:
    """Of what a model waits for; that of files which come beside one that serves is told below."""
    progress = model.get("progress") or {}
    total = progress.get("total_bytes")
    if not total or model.get("state") != "caching":
        return ""
    return f" {100 * progress.get('done_bytes', 0) // total} %"


def _notes(server: Json, *, verbose: bool, lone: bool) -> Iterator[RenderableType]:
    """`lone`: no other node is shown, so that a model's name says all."""
    node = server.get("node")
    at = "" if lone else f" on {node}"
    loop = server.get("loop") or {}
    if loop.get("silent") or (loop.get("age_seconds") or 0.0) >= _OLD_SECONDS:
        yield Text(f"\n{node}: {_old(server, loop)}", style="red")
    if crashed := crashes(server):
        yield Text(f"\n{node}: {crashed}", style="yellow")
    if problem := why_none_is_left(server):
        yield Text(f"\n{node}: {problem}", style="yellow")
    yield from _drift(node, server.get("drift", ()))
    for model in server.get("models", ()):
        subject = f"{model['name']}{at}"
        if newer := model.get("newer"):
            yield Text(f"\n{subject}: {newer.get('reason')}", style="yellow")
        yield from _drift(subject, model.get("drift", ()))
        for warning in model.get("warnings", ()):
            yield Text(f"\n{subject}: {warning}", style="yellow")
        if lines := model.get("last_lines"):
            yield Text(f"\nlast lines of {subject}:", style="bold")
            yield from _dim(lines[-_LAST_LINES:])
    if not verbose:
        yield from short(node, server.get("conditions", ()))
        return
    yield from every(node, server.get("conditions", ()))
    for model in server.get("models", ()):
        yield from every(f"{model['name']}{at}", model.get("conditions", ()))


def _drift(subject: object, drift: Iterable[Json]) -> Iterator[Text]:
    """What came to be otherwise by itself, and what was done about it."""
    for each in drift:
        of = f"engine of {subject}" if each["kind"] == DriftKind.LAUNCH_DIFFERS else subject
        yield Text(f"\n{of}: {each['what']}; {each['done']}", style="yellow")


def _old(server: Json, loop: Json) -> str:
    """That the view is old, before anybody believes it."""
    age = span(loop.get("age_seconds") or 0.0)
    as_of = server.get("as_of") or "the agent's start"
    return f"all of this is as of {as_of}, {age} ago: the agent's loop has ended no tick since"


def _dim(lines: Iterable[str]) -> Iterator[Text]:
    return (Text(f"  {line}", style="dim") for line in lines)
