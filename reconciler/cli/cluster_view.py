"""The nodes of a cluster as they are shown to people: one line each, and why one is not there."""

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from rich.console import RenderableType
from rich.text import Text

from reconciler.cli.client import Json
from reconciler.cli.table import Column, table
from reconciler.errors import Rejected
from reconciler.plan.peering import Address, Names, host_and_port, named
from reconciler.plan.wording import span

_COLUMNS = (
    Column(title="NODE"),
    Column(title="AGENT"),
    Column(title="MANIFEST", rank=3),
    Column(title="GPUS", rank=2),
    Column(title="READY", rank=1),
    Column(title="BUSY", rank=4),
    Column(title="HEARD", rank=5),
    Column(title="WHY", prose=True),
)
_NAMED = 20
"""Nodes in one message."""


def nodes(servers: Sequence[Json], *, width: int) -> RenderableType:
    """READY: models that serve, of those that are selected there. HEARD: how long ago."""
    return table(_COLUMNS, [_row(server) for server in servers], width=width)


def is_there(server: Json) -> bool:
    return bool(server.get("reachable", True))


def called(server: Json) -> str:
    """Its node; of one that was never seen, its address."""
    node, address = str(server.get("node")), server.get("address")
    return f"{node} ({address})" if node == "unknown" and address else node


def told_apart(servers: Sequence[Json]) -> list[Json]:
    """To be shown: where several agents have one node name, each with its address in it."""
    count = Counter(server.get("node") for server in servers)
    return [
        {**server, "node": f"{server.get('node')} ({server['address']})"}
        if count[server.get("node")] > 1 and server.get("address")
        else server
        for server in servers
    ]


def nowhere(servers: Sequence[Json], asked: str | None) -> dict[str, str]:
    """The models of the manifest that no node has, each with the reason that one node says: the
    one that was `asked` (None: it is not known which), if it says any."""
    had = {model.get("name") for server in servers for model in server.get("models", ())}
    asked_last = sorted(servers, key=lambda server: server.get("node") == asked)
    return {
        str(other["name"]): str(other["reason"])
        for server in asked_last
        for other in server.get("elsewhere") or ()
        if other["name"] not in had
    }


def only(view: Json, name: str) -> Json:
    """The view with one node alone, by what `--target` takes; with all of those that this names.
    Raises Rejected."""
    found = named(name, view["servers"], _names)
    if found:
        return {**view, "servers": found, "count": len(found)}
    known = [called(server) for server in view["servers"]]
    more = f" and {len(known) - _NAMED} more" if len(known) > _NAMED else ""
    raise Rejected(f"cannot show node {name}: the agent knows {', '.join(known[:_NAMED])}{more}")


def _names(server: Json) -> Names:
    host, port = host_and_port(str(server.get("address") or ""))
    return Names(
        node=server.get("node"),
        pod_name=server.get("pod_name"),
        pod_ip=server.get("pod_ip"),
        address=Address(host=host, port=port) if port is not None else None,
    )


def agent(server: Json) -> str:
    """In a word how it stands."""
    if not is_there(server):
        return "unreachable"
    if (server.get("loop") or {}).get("silent"):
        return "silent"
    return "draining" if server.get("draining") else "ready" if server.get("ready") else "starting"


def _row(server: Json) -> list[Text]:
    state, models = agent(server), server.get("models", ())
    colour = {"ready": "green", "unreachable": "red", "silent": "red"}.get(state, "yellow")
    enabled = [model for model in models if model.get("enabled", True)]
    busy = sum(model.get("in_flight", 0) for model in server.get("loaded_models", ()))
    known = is_there(server)
    return [
        Text(called(server)),
        Text(state, style=colour),
        Text(((server.get("revision") or {}).get("applied") or "-")[:12]),
        Text(_gpus(server.get("gpu") or {})),
        Text(f"{len(server.get('loaded_models', ()))}/{len(enabled)}" if known else "-"),
        Text(str(busy) if known else "-"),
        Text(_heard(server.get("heard_seconds"))),
        Text(_why(server)),
    ]


def _gpus(gpu: Json) -> str:
    count = gpu.get("count")
    return f"{count} {gpu.get('type')}" if count else "-"


def _heard(seconds: float | None) -> str:
    return "never" if seconds is None else span(seconds)


def _why(server: Json) -> str:
    if is_there(server):
        return str(server.get("unknown_because") or "")
    return f"{server.get('reason') or ''}{_since(server.get('unreachable_since'))}"


def _since(moment: object) -> str:
    """By the clock of whoever reads it."""
    try:
        return f" since {datetime.fromisoformat(str(moment)).astimezone().strftime('%H:%M:%S')}"
    except ValueError:
        return ""
