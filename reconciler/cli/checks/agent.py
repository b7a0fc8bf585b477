"""The agent: whether it runs, and what it says of itself."""

import os
from collections.abc import Iterator
from pathlib import Path

from reconciler.cli.agent_view import crashes, how_it_ends, why_none_is_left
from reconciler.cli.checks.finding import Finding, fail, ok, skip, warn
from reconciler.cli.client import Json, known_agent
from reconciler.cli.cluster_view import called, is_there, nowhere, told_apart
from reconciler.cli.condition_view import is_bad, is_told_elsewhere
from reconciler.cli.status_view import TAKES, readiness
from reconciler.errors import Rejected, Transient

_TROUBLE = ("error", "blocked")
_NAMED = 5
"""Nodes in one message."""
_LOOK = "start it, or look at its log"
_AWAY = (
    ("cluster token", "give all agents one --cluster-token-file"),
    ("is not an xgen-model agent", "see what answers there; correct --peers"),
    ("has a name that leads nowhere", "correct the name in --peers, or DNS"),
    ("refuses connections", "start the agent there, and see that --listen is not its loopback"),
)
"""What helps, by the reason."""
_AWAY_ELSE = "see whether that host is up and lets this one through; xgen-model doctor there"


def agent_findings(server: str | None, folder: Path, *, holder: int | None) -> Iterator[Finding]:
    """`holder`: the pid that holds the folder; 0: it is not known here; None: nobody does."""
    agent = None
    try:
        agent = known_agent(server, folder)
        if agent is None:
            if holder:
                yield _starts(holder, "there is no agent.json")
            else:
                yield skip("agent", f"none runs with {folder}", "xgen-model run --manifest PATH")
            return
        seen = agent.servers()
    except (Transient, Rejected) as exc:
        if agent is None or agent.folder is None:
            yield fail("agent", str(exc), _LOOK)
        elif not holder:
            yield warn("agent", str(exc), _LOOK)
        elif holder != agent.pid:
            yield _starts(holder, f"agent.json names pid {agent.pid} at {agent.url}")
        else:
            yield _silent(holder, str(exc))
        return
    yield from view_findings(seen, agent.url)


def view_findings(view: Json, url: str) -> Iterator[Finding]:
    """Of all nodes, as the agent at `url` has them."""
    own = view.get("self_node")
    for server in told_apart(view["servers"]):
        if not is_there(server):
            yield _away(server)
        elif own in (None, server.get("node")):
            yield from _node(server, url, "")
        else:  # of two that have one name, each is asked by its address
            node, address = str(server.get("node")), str(server.get("address"))
            named = address if address in node else node
            yield from _node(server, address, f" --target {named}")
    yield from nowhere_findings(view)


def _away(server: Json) -> Finding:
    """What it said last is old, and nothing of it is told here."""
    reason = str(server.get("reason") or "cannot be reached")
    step = next((step for said, step in _AWAY if said in reason), _AWAY_ELSE)
    seen = "" if server.get("heard_seconds") is not None else "; it has never answered"
    said = f"cannot be reached at {server.get('address')}: it {reason}{seen}"
    return warn(f"agent of {called(server)}", said, step)


def nowhere_findings(view: Json) -> Iterator[Finding]:
    """Models that no node of a cluster has."""
    servers = view["servers"]
    if len(servers) < 2:
        return
    known = ", ".join(map(called, servers[:_NAMED])) + (", …" if len(servers) > _NAMED else "")
    for name, reason in sorted(nowhere(servers, view.get("self_node")).items()):
        step = f"name nodes for it in the manifest that there are ({known}), or start their agents"
        yield warn(f"model {name}", f"runs at no node: {reason}", step)


def _starts(holder: int, where: str) -> Finding:
    """An agent takes the folder first, and says where it answers once it does."""
    said = f"pid {holder} holds the data folder, and {where}: it starts, or is in a container"
    return warn("agent", said, "look again; if it stays so, look at its log")


def _silent(holder: int, cause: str) -> Finding:
    """It has told where it answers, and lives."""
    if _is_apart(holder):
        return warn("agent", f"{cause}; it has a network of its own", "ask it inside its container")
    step = f"pid {holder} lives: see its log; grep State /proc/{holder}/status (T: it was stopped)"
    return fail("agent", cause, step)


def _is_apart(pid: int) -> bool:
    """Whether its loopback is another one, as far as this user may know."""
    try:
        return os.readlink(f"/proc/{pid}/ns/net") != os.readlink("/proc/self/ns/net")
    except OSError:
        return False


def _node(view: Json, url: str, at: str) -> Iterator[Finding]:
    """`url`: where it answers. `at`: the option by which commands ask that node."""
    node = view.get("node")
    subject = f"agent of {node}"
    models = view.get("models", [])
    loaded = sum(model.get("state") == "loaded" for model in models)
    said = f"{url}, version {view.get('agent_version')}, {loaded} of {len(models)} models loaded"
    state = readiness(view)
    if state == TAKES:
        yield ok(subject, said)
    else:
        yield warn(subject, f"{said}; {state}", "xgen-model status --watch")
    if ends := how_it_ends(view):
        yield ok(subject, ends)
    if crashed := crashes(view):
        step = f"its log, and xgen-model events{at}, from before that"
        yield warn(subject, crashed, step)
    if problem := why_none_is_left(view):
        yield warn(subject, problem, "docs/operating.md, section Ending and leaving")
    for condition in filter(is_bad, view.get("conditions", ())):
        if is_told_elsewhere(condition):
            continue
        state = f"{condition['type']} is {condition['status']}: {condition['message']}"
        yield warn(subject, state, "docs/conditions.md says what each condition means")
    for model in models:
        if model.get("state") in _TROUBLE:
            said = f"{model['state']}: {model['reason']}"
            yield warn(f"model {model['name']}", said, _step(model, at))
        target = model.get("target") or {}
        if target.get("state") in _TROUBLE:
            step = f"xgen-model events --model {model['name']}{at}"
            said = f"its new version is {target['state']}: {target['reason']}"
            yield warn(f"model {model['name']}", said, step)


def _step(model: Json, at: str) -> str:
    """What never ran has no log: its flags are refused, or its files do not come."""
    retry = f"then xgen-model reconcile --retry{at}"
    if model.get("last_lines"):
        return f"xgen-model logs {model['name']}{at}; {retry}"
    if model["state"] == "blocked":
        return f"change what the reason names; {retry}"
    return f"xgen-model events --model {model['name']}{at}; {retry}"
