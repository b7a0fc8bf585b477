"""`xgen-model logs`: what a model's backends printed, from the agent or from its data folder."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote

import typer

from reconciler.apply.logs import log_path
from reconciler.apply.model_log import Logs, ModelLog
from reconciler.apply.records import Records
from reconciler.apply.spawn_logs import logs_of, model_of
from reconciler.cli.client import Agent, UnknownModel, find_agent, known_agent, segment
from reconciler.cli.completion import complete_model
from reconciler.cli.options import DataDir, ServerOption, TargetOption, data_dir
from reconciler.cli.output import Output, OutputOption, print_json_line, remark
from reconciler.errors import Rejected, XgenError
from reconciler.plan.ids import ModelName

_MOST_LINES = 10_000
_PAUSE_SECONDS = 0.25

Say = Callable[[str], None]
"""Prints one line of the log."""


def logs(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="A model's name or alias.", autocompletion=complete_model
        ),
    ],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what comes, until Ctrl-C.")
    ] = False,
    lines: Annotated[
        int,
        typer.Option(
            "--lines", "-n", metavar="N", min=0, max=_MOST_LINES, help="How many of the last lines."
        ),
    ] = 200,
    server: ServerOption = None,
    target: TargetOption = None,
    data: DataDir = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Print what a model's backends printed: this run's, and those before it.

    Without an agent, or for a model that it has no more, the data folder's own files are read, and
    stderr says so. --output json prints an object a line.
    """
    say = _as_json(model) if output is Output.JSON else _as_text
    folder = data_dir(data)
    agent = known_agent(server, folder) if target is None else find_agent(server, folder, target)
    files = logs_of(folder / "logs", ModelName(model))
    printed = 0
    if agent is not None:
        try:
            if follow and not any(_from_agent(agent, model, 1, follow=False)):
                remark(_why_empty(agent, model))
            for line in _from_agent(agent, model, lines, follow=follow):
                say(line)
                printed += 1
            if not printed and lines and not follow:
                remark(_why_empty(agent, model))
            return
        except XgenError as exc:
            if server is not None or target is not None or not files:
                if target is None and isinstance(exc, UnknownModel):
                    raise Rejected(f"{exc}{_elsewhere(agent, model)}") from exc
                raise
            remark(f"{exc}\nreading {_named(files)}")
    elif files:
        remark(f"no agent is known; reading {_named(files)}")
    else:
        raise _nothing_known(model, folder)
    reader = Logs(folder / "logs", lambda: _keys(folder)).open(ModelName(model))
    asyncio.run(_from_file(reader, 0 if printed else lines, say, follow=follow))


def _from_agent(agent: Agent, model: str, lines: int, *, follow: bool) -> Iterator[str]:
    """Raises as the client does, before the first line or after any."""
    path = f"/api/management/models/{segment(model)}/logs"
    query = {"lines": lines, "follow": "true" if follow else "false"}
    with agent.stream(path, query, silence_seconds=None) as text:
        yield from text
    if follow:
        remark("the log ends here: the agent ends, or has the model no more")


def _elsewhere(agent: Agent, model: str) -> str:
    """Which nodes have it, a clause with the step that helps; empty: none, or it is not known."""
    try:
        servers = agent.servers()["servers"]
    except XgenError:
        return ""
    nodes = [
        str(server.get("node"))
        for server in servers
        for each in server.get("models", ())
        if model in (each.get("name"), *each.get("aliases", ()))
    ]
    return f"; it is on {', '.join(nodes)}: add --target {nodes[0]}" if nodes else ""


def _why_empty(agent: Agent, model: str) -> str:
    """Each log begins with a line of ours, so one that is there has lines."""
    detail = agent.get(f"/api/management/models/{segment(model)}")
    log, pid = detail.get("log"), detail.get("pid")
    if log is not None:
        return (
            f"{model} has no log: somebody removed or emptied {log}, where its process, pid {pid}, "
            "prints to; its next start has a log again. Until that process ends, "
            f"`cat /proc/{pid}/fd/1` on its node shows what was removed"
        )
    failed = (detail.get("failure") or {}).get("recent", ())
    ran = any(each.get("during") in ("load", "run") for each in failed)
    if ran or detail.get("restarts"):
        return (
            f"{model} has no log any more: it does not run, and somebody removed the logs of its "
            "starts from DATA_DIR/logs; its next start has a log again"
        )
    return f"{model} has not started yet: no log"


async def _from_file(reader: ModelLog, lines: int, say: Say, *, follow: bool) -> None:
    _say_all(await reader.last(lines), say)
    while follow:
        _say_all(await reader.more(), say)
        await asyncio.sleep(_PAUSE_SECONDS)


def _say_all(text: bytes, say: Say) -> None:
    for line in text.decode().splitlines():
        say(line)


def _as_text(line: str) -> None:
    print(line, flush=True)


def _as_json(model: str) -> Say:
    return lambda line: print_json_line({"model": model, "line": line})


def _keys(folder: Path) -> Iterable[str]:
    """The keys of backends that may still run: what they print may hold them."""
    records, _ = Records(folder / "spawns").read()
    return [record.api_key for record in records if record.api_key is not None]


def _named(files: Sequence[Path]) -> str:
    older = f", and {len(files) - 1} before it" if len(files) > 1 else ""
    return f"{files[-1]}{older}"


def _nothing_known(model: str, folder: Path) -> Rejected:
    said = (
        f"cannot read the logs of {model}: {folder} names no agent, and has no log of it, as "
        f"{log_path(folder / 'logs', ModelName(model)).stem}@1.log, in {folder / 'logs'}"
    )
    if known := sorted({unquote(model_of(file)) for file in (folder / "logs").glob("*.log")}):
        return Rejected(f"{said}; it has logs of {', '.join(known)}")
    return Rejected(f"{said}; name an agent with --server URL or --data-dir")
