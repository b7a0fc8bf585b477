"""`xgen-model reconcile`: look again now, and try again what failed."""

import time
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from reconciler.cli.client import Agent, Json, find_agent
from reconciler.cli.completion import complete_model
from reconciler.cli.exits import ExitCode
from reconciler.cli.options import DataDir, ServerOption, TargetOption, data_dir
from reconciler.cli.output import Output, OutputOption, print_json, remark
from reconciler.cli.suspend import who
from reconciler.errors import Rejected

_PATH = "/api/management/reconcile"
_PLAN = "/api/management/plan"
_PAUSE_SECONDS = 0.5
_SHORTEST = 7
"""Of a revision's characters, so that they name it."""
_GOOD = frozenset({"loaded", "disabled"})
_NOT_TAKEN = {"SourceReady": "False", "ManifestValid": "False", "ConfirmationNeeded": "True"}
_AT_REST = _GOOD | {"error", "blocked", "stopped"}


def reconcile(
    retry: Annotated[
        bool,
        typer.Option("--retry", help="Forget failures: try what is blocked or waits, now."),
    ] = False,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL", help="Only this model. [default: all]", autocompletion=complete_model
        ),
    ] = None,
    confirm: Annotated[
        str | None,
        typer.Option(
            metavar="REVISION",
            help="Let this revision, which waits, stop the models that it stops: all of it, or its "
            "first seven characters or more.",
        ),
    ] = None,
    now: Annotated[
        bool,
        typer.Option("--now", help="Do what waits for a maintenance window now, until one opens."),
    ] = False,
    wait: Annotated[
        bool, typer.Option("--wait", help="Until every model serves, or has failed.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", min=1, help="The most that --wait takes.")
    ] = 1800,
    server: ServerOption = None,
    target: TargetOption = None,
    data: DataDir = None,
    output: OutputOption = Output.TEXT,
) -> int:
    """Make an agent read its manifest and look at everything now.

    A revision that would stop too many models waits for --confirm; what would stop one that serves
    outside of a maintenance window waits for --now or the window.
    What failed for good waits for a change, or for --retry. Only on the agent's own host;
    --target NODE needs a cluster token.

    Exit 0: done; with --wait: and every model serves or is disabled, as the newest manifest has
    it. 1: not so.
    """
    if confirm is not None and len(confirm) < _SHORTEST:
        raise typer.BadParameter(
            f"{confirm!r} is too short: all of the revision, or its first seven characters or more",
            param_hint="--confirm",
        )
    agent = find_agent(server, data_dir(data), target)
    body: Json = {"retry": retry} | ({"model": model} if model is not None else {})
    if confirm is not None or now:
        body |= {"confirm": confirm, "now": now, "by": who()}
    answer = agent.post(_PATH, body)
    if output is Output.TEXT:
        typer.echo(_said(answer, retry=retry))
    if not wait:
        if output is Output.JSON:
            print_json(answer)
        return ExitCode.OK
    # A second round is taken up after the first has ended: what is read next is newer than both.
    agent.post(_PATH, {})
    models = _settled(agent, model, timeout, quiet=output is Output.JSON)
    serve = all(entry["state"] in _GOOD and not entry.get("target") for entry in models)
    not_taken = list(_not_taken(agent))
    good = serve and not not_taken
    if output is Output.JSON:
        shown = [{key: each[key] for key in ("name", "state", "reason")} for each in models]
        print_json({**answer, "settled": good, "models": shown, "not_taken": not_taken})
    for said in not_taken:
        remark(f"the newest manifest is not in force: {said}")
    return ExitCode.OK if good else ExitCode.ERROR


def _said(answer: Json, *, retry: bool) -> str:
    said = "; ".join([*answer.get("said", ()), f"{answer['node']} looks again"])
    if not retry:
        return said
    retried = ", ".join(answer["retried"])
    if retried:
        return f"{said}, and tries {retried} anew"
    return said if answer.get("said") else f"{said}; nothing had failed"


def _settled(agent: Agent, model: str | None, timeout: float, *, quiet: bool) -> list[Json]:
    """The models once none is on its way. Each new state is printed, unless `quiet`."""
    deadline = time.monotonic() + timeout
    told: dict[str, tuple[str, ...]] = {}
    while True:
        models = list(_chosen(agent, model))
        for entry in models:
            states = _states(entry)
            if not quiet and told.get(entry["name"]) != states:
                typer.echo(_shown(entry))
            told[entry["name"]] = states
        held = _held(agent)
        coming = [str(each["name"]) for each in models if not _is_at_rest(each, held)]
        if not coming:
            return models
        if time.monotonic() > deadline:
            remark(f"still on the way after {timeout:g} s: {', '.join(coming)}")
            return models
        time.sleep(_PAUSE_SECONDS)


def _held(agent: Agent) -> frozenset[str]:
    """Those that a rail holds back, until somebody or a window lets them go."""
    return frozenset(each["model"] for each in agent.get(_PLAN).get("held", ()))


def _chosen(agent: Agent, model: str | None) -> Iterator[Json]:
    models: Sequence[Json] = agent.get("/api/management/models")["models"]
    found = [each for each in models if model is None or model in (each["name"], *each["aliases"])]
    if model is not None and not found:
        raise Rejected(f"cannot wait for {model}: the agent has it no more")
    yield from found


def _states(entry: Json) -> tuple[str, ...]:
    """Of what is there, and of what is coming beside it."""
    target = entry.get("target")
    return (str(entry["state"]), *([str(target["state"])] if target else []))


def _shown(entry: Json) -> str:
    said = f"{entry['name']}: {entry['state']}: {entry['reason']}"
    target = entry.get("target")
    return f"{said}; coming: {target['state']}, {target['reason']}" if target else said


def _is_at_rest(entry: Json, held: frozenset[str]) -> bool:
    """What was begun comes to its end, whatever a rail holds back then."""
    rest = _AT_REST | {"pending"} if entry["name"] in held else _AT_REST
    return all(state in rest for state in _states(entry))


def _not_taken(agent: Agent) -> Iterator[str]:
    """Why the newest manifest is not in force, or may not be the newest."""
    for each in agent.get("/api/cluster/_self").get("conditions", ()):
        if _NOT_TAKEN.get(each["type"]) == each["status"]:
            yield f"{each['type']} is {each['status']} ({each['reason']}): {each['message']}"
