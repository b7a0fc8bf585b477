"""`status --watch`: a calm screen on a terminal, a line a change elsewhere."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from reconciler.cli.client import Agent, Json
from reconciler.cli.cluster_view import called, is_there, only, told_apart
from reconciler.cli.output import Output, console, print_json_line, show
from reconciler.cli.status_view import render
from reconciler.errors import XgenError

_PAUSE_SECONDS = 1.0
_REDRAW_SECONDS = 20.0
"""For the ages on the screen, where nothing else is new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What was seen last. `view` None: nothing yet. `away`: why nothing is seen now, since when.

    `steady`: the view without what moves by itself; two looks are alike where these are."""

    view: Json | None = field(default=None, compare=False)
    steady: Json | None = None
    away: str | None = None
    since: str = ""


def watch_status(
    find: Callable[[], Agent],
    output: Output,
    *,
    node: str | None = None,
    verbose: bool = False,
) -> None:
    """Follow until the process is interrupted. `find`: the agent, anew with each look; one that is
    away is waited for. `node`: this one alone. `verbose`: the screen has every condition."""
    out, looks = console(), _looks(find, node)
    if output is Output.JSON:
        _print_views(looks)
    elif out.is_terminal and not out.is_dumb_terminal:
        _draw(looks, out, verbose=verbose)
    else:
        _print_changes(looks, out)


def _looks(find: Callable[[], Agent], node: str | None) -> Iterator[Look]:
    """A look a second. The agent is found anew each time: it may answer elsewhere by now."""
    last = Look()
    while True:
        try:
            view = find().servers()
            if node is not None:
                view = only(view, node)
            last = Look(view=view, steady=_steady(view))
        except XgenError as exc:
            since = last.since if last.away is not None else _now()
            last = replace(last, away=str(exc), since=since)
        yield last
        time.sleep(_PAUSE_SECONDS)


def _steady(view: Json) -> Json:
    """Without the moment of the answer; that the loop is silent is no such thing."""
    moment = ("now", "as_of", "loop", "heard_seconds")
    nodes = [
        {
            **{key: value for key, value in node.items() if key not in moment},
            "silent": (node.get("loop") or {}).get("silent"),
        }
        for node in view.get("servers", ())
    ]
    return {**view, "servers": nodes}


def _draw(looks: Iterator[Look], out: Console, *, verbose: bool) -> None:
    """Redraw when something changed, on the terminal's second screen; leave the last on the first.

    Nothing is erased before it is written again, so that nothing flickers.
    """
    last, size, drawn_at = Look(), out.size, 0.0
    with contextlib.ExitStack() as stack:
        stack.callback(lambda: out.print(_screen(last, out.width, verbose=verbose)))
        stack.enter_context(_ended_by_sigterm())
        live = stack.enter_context(Live(console=out, screen=True, auto_refresh=False))
        for look in looks:
            now = time.monotonic()
            if (look, out.size) != (last, size) or now - drawn_at >= _REDRAW_SECONDS:
                last, size, drawn_at = look, out.size, now
                live.update(_screen(look, out.width, verbose=verbose), refresh=True)


def _screen(look: Look, width: int, *, verbose: bool) -> RenderableType:
    parts: list[RenderableType] = []
    if look.away is not None:
        parts.append(Text(f"no answer since {look.since}: {look.away}\n", style="red"))
        if look.view is not None:
            parts.append(Text("What it said last:", style="dim"))
    if look.view is not None:
        parts.append(render(look.view, width=width, verbose=verbose))
    return Group(*parts)


def _print_changes(looks: Iterator[Look], out: Console) -> None:
    """`TIME NODE MODEL STATE REASON` whenever one of the last two is another; of a node among
    several `TIME NODE` and whether it can be reached."""
    said: dict[tuple[str, ...], str] = {}
    away: str | None = None
    for look in looks:
        if look.away is not None:
            if look.away != away:
                show(out, Text(f"{_now()} no answer: {look.away}"))
        else:
            now = _states(look.view or {})
            for key in sorted(said.keys() - now.keys()):
                show(out, Text(f"{_now()} {' '.join(key)} gone"))
            for key, text in sorted(now.items()):
                if said.get(key) != text or away is not None:
                    show(out, Text(f"{_now()} {' '.join(key)} {text}"))
            said = now
        away = look.away


def _states(view: Json) -> dict[tuple[str, ...], str]:
    servers = told_apart(view.get("servers", ()))
    nodes: dict[tuple[str, ...], str] = {}
    if len(servers) > 1:
        nodes = {(called(server),): _reach(server) for server in servers}
    models: dict[tuple[str, ...], str] = {
        (str(server.get("node")), str(model["name"])): f"{model['state']} {model['reason']}"
        for server in servers
        for model in server.get("models", ())
    }
    return {**nodes, **models}


def _reach(server: Json) -> str:
    if is_there(server):
        return "can be reached"
    return f"cannot be reached: {server.get('reason')}"


def _print_views(looks: Iterator[Look]) -> None:
    """The view whenever it changed; while the agent is away, `{"away": why, "since": when}`."""
    last: Look | None = None
    for look in looks:
        if look != last:
            last = look
            print_json_line(
                look.view if look.away is None else {"away": look.away, "since": look.since}
            )


@contextlib.contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """The terminal is put back also when the process is told to end."""

    def leave(*_: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _now() -> str:
    return datetime.now(UTC).astimezone().strftime("%H:%M:%S")
