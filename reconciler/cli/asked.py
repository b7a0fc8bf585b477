"""What the agents of a cluster say that a manifest would change, each of its own node."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from reconciler.cli.client import Agent, Json
from reconciler.errors import Rejected, Transient
from reconciler.plan.changes import NodeChanges
from reconciler.plan.changes_json import node_from_json
from reconciler.plan.ids import NodeName

_SECONDS = 120.0
"""A rehearsal asks the hub, and waits for the one before it."""
_AT_A_TIME = 16


def told_by(
    agent: Agent, node: str | None, files: Mapping[str, bytes] | None
) -> Sequence[NodeChanges]:
    """Of each node that `agent` knows, or of one. `files` None: the manifest in force.

    A node that cannot be asked is told as such beside others. Raises Transient (no agent answers)
    or Rejected (none can take that manifest).
    """
    content = None
    if files is not None:
        content = [{"name": name, "content": each.decode()} for name, each in files.items()]
    servers = _servers(agent, node)
    with ThreadPoolExecutor(min(_AT_A_TIME, len(servers))) as threads:
        told = list(threads.map(partial(_tolerant, agent, content), servers))
    failures = [each for each in told if isinstance(each, Rejected | Transient)]
    if len(failures) == len(told):
        raise failures[0]
    return [
        each if isinstance(each, NodeChanges) else _unasked(server, each)
        for server, each in zip(servers, told, strict=True)
    ]


def _tolerant(
    agent: Agent, content: list[Json] | None, server: Json
) -> NodeChanges | Rejected | Transient:
    if not server.get("reachable", True):
        since, why = server.get("unreachable_since"), server.get("reason")
        where = server.get("address") or server["node"]
        return Transient(f"{where} cannot be reached since {since}: it {why}")
    try:
        return _ask(agent, content, str(server["node"]))
    except (Rejected, Transient) as exc:
        return exc


def _ask(agent: Agent, content: list[Json] | None, name: str) -> NodeChanges:
    told = agent.post("/api/management/plan", {"files": content}, seconds=_SECONDS, server=name)
    try:
        return node_from_json(told)
    except (KeyError, TypeError, ValueError) as exc:
        raise Rejected(
            f"cannot understand the agent of {name}: {exc!r}; "
            "it is another release than this command"
        ) from exc


def _unasked(server: Json, why: Exception) -> NodeChanges:
    return NodeChanges(node=NodeName(str(server["node"])), changes=(), unasked=str(why))


def _servers(agent: Agent, node: str | None) -> list[Json]:
    try:
        servers: list[Json] = agent.servers()["servers"]
    except Transient as exc:
        raise Transient(f"{exc}; or plan from nothing with --offline") from exc
    if node is None:
        return servers
    named = [each for each in servers if each["node"] == node]
    if not named:
        known = ", ".join(str(each["node"]) for each in servers)
        raise Rejected(
            f"cannot plan for node {node}: the agent at {agent.url} knows {known}; "
            "add --offline to plan for it from nothing"
        )
    return named
