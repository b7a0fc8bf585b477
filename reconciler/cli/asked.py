"""What the agents of a cluster say that a manifest would change, each of its own node."""

from collections.abc import Iterator, Mapping

from reconciler.cli.client import Agent
from reconciler.errors import Rejected, Transient
from reconciler.plan.changes import NodeChanges
from reconciler.plan.changes_json import node_from_json

_SECONDS = 120.0
"""A rehearsal asks the hub, and waits for the one before it."""


def told_by(
    agent: Agent, node: str | None, files: Mapping[str, bytes] | None
) -> Iterator[NodeChanges]:
    """Of each node that `agent` can reach, or of one. `files` None: the manifest in force.

    Raises Transient (no agent answers) or Rejected (it cannot take that manifest).
    """
    content = None
    if files is not None:
        content = [{"name": name, "content": each.decode()} for name, each in files.items()]
    for name in _nodes(agent, node):
        told = agent.post("/api/management/plan", {"files": content}, seconds=_SECONDS, server=name)
        try:
            yield node_from_json(told)
        except (KeyError, TypeError, ValueError) as exc:
            raise Rejected(
                f"cannot understand the agent of {name}: {exc!r}; "
                "it is another release than this command"
            ) from exc


def _nodes(agent: Agent, node: str | None) -> tuple[str, ...]:
    try:
        servers = agent.servers()["servers"]
    except Transient as exc:
        raise Transient(f"{exc}; or plan from nothing with --offline") from exc
    names = tuple(str(view["node"]) for view in servers if view.get("reachable", True))
    if node is None or node in names:
        return names if node is None else (node,)
    raise Rejected(
        f"cannot plan for node {node}: the agent at {agent.url} knows {', '.join(names)}; "
        "add --offline to plan for it from nothing"
    )
