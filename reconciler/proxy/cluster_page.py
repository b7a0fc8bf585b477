"""The cluster as a page for browsers, of the very JSON that others get (PURE).

What it shows is what agents, manifests and engines say: none of it is trusted, neither to be free
of markup nor to have the form that it should have.
"""

import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any
from urllib.parse import quote

import msgspec

from reconciler.condition import ABNORMAL_IF_TRUE
from reconciler.proxy.errors import Header

REFRESH_SECONDS = 10
_GIB = 1 << 30
_STYLE = """
body { font: 14px/1.4 system-ui, sans-serif; margin: 1.5rem; color: #1b1f24; background: #fff; }
h1 { font-size: 1.3rem; } h2 { font-size: 1.05rem; margin-top: 1.6rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .25rem .7rem .25rem 0; }
th { border-bottom: 1px solid #888; } td { border-bottom: 1px solid #ddd; overflow-wrap: anywhere; }
.good { color: #116329; } .bad { color: #b3261e; font-weight: 600; } .so { color: #7a5200; }
@media (prefers-color-scheme: dark) { body { color: #ddd; background: #15181c; }
  td { border-color: #333; } a { color: #8ab4f8; } .good { color: #6fd08c; }
  .bad { color: #ff8a80; } .so { color: #e0b050; } }
"""
_CSP = (
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    f"style-src 'sha256-{base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()}'"
)
HEADERS: tuple[Header, ...] = (
    (b"content-security-policy", _CSP.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
"""Nothing of the page but its own style is obeyed, whatever stands in it."""
_CLASSES = {"ready": "good", "loaded": "good", "unreachable": "bad", "silent": "bad"}
_CLASSES |= {"error": "bad", "blocked": "bad"}

Json = dict[str, Any]


class _Safe(str):
    """HTML, with all that came from outside escaped."""

    __slots__ = ()


def page(view: bytes) -> bytes:
    """One document without scripts or assets. `view`: as `/api/cluster/servers` says it."""
    said = msgspec.json.decode(view)
    servers = _objects(said.get("servers"))
    away = sum(not _is_there(server) for server in servers)
    lost = f", {away} of them cannot be reached" if away else ""
    count = f"{len(servers)} node{'' if len(servers) == 1 else 's'}{lost}"
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width">',
        f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}">',
        f"<title>{escape(count)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>The cluster, as {_text(said.get('self_node'))} has it</h1>",
        f'<p>{escape(count)}. Renewed every {REFRESH_SECONDS} s. <a href="/api/cluster/servers">',
        "As JSON</a>, with all fields.</p>",
        *_table("Nodes", _NODES, map(_node, servers)),
        *_table("Models", _MODELS, _models(servers)),
        *_table("In the manifest, and at no node", ("Model", "Why"), _nowhere(said, servers)),
        *_table("Conditions that are not fine", _CONDITIONS, _conditions(servers)),
        *_table("Revisions of the manifest differ", ("Revision", "Nodes"), _skew(said)),
        "</body></html>\n",
    ]
    return "".join(parts).encode("utf-8", "replace")


_NODES = ("Node", "Address", "Agent", "Why", "Manifest", "GPUs", "Serving", "In flight")
_MODELS = ("Node", "Model", "Type", "State", "Reason", "In flight")
_CONDITIONS = ("Node", "Condition", "Reason", "Message", "Since")


def _table(title: str, heads: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Nothing where it would be empty. Cells that are not safe are escaped."""
    lines = [f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in rows]
    if lines:
        yield f"<h2>{escape(title)}</h2><table><thead><tr>"
        yield "".join(f'<th scope="col">{escape(head)}</th>' for head in heads)
        yield f"</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _node(server: Json) -> Sequence[object]:
    node, stands = str(server.get("node")), _stands(server)
    loaded, there = _objects(server.get("loaded_models")), _is_there(server)
    wanted = [model for model in _objects(server.get("models")) if model.get("enabled", True)]
    busy = [model.get("in_flight") for model in loaded]
    applied = _object(server.get("revision")).get("applied")
    return (
        _linked(node, server),
        server.get("address"),
        _marked(stands),
        _why(server),
        None if applied is None else str(applied)[:12],
        _gpus(_object(server.get("gpu"))),
        f"{len(loaded)} of {len(wanted)}" if there else None,
        sum(count for count in busy if isinstance(count, int)) if there else None,
    )


def _linked(node: str, server: Json) -> _Safe:
    """To what that node says itself, through the one that is asked."""
    target = str(server.get("address") if node == "unknown" else node)
    return _Safe(f'<a href="/api/cluster/_self?server={quote(target, safe="")}">{_text(node)}</a>')


def _stands(server: Json) -> str:
    if not _is_there(server):
        return "unreachable"
    if _object(server.get("loop")).get("silent"):
        return "silent"
    return "draining" if server.get("draining") else "ready" if server.get("ready") else "starting"


def _why(server: Json) -> object:
    if _is_there(server):
        return server.get("unknown_because")
    since = server.get("unreachable_since")
    return f"{server.get('reason')}{'' if since is None else f', since {since}'}"


def _gpus(gpu: Json) -> str | None:
    """Each name with how many there are, and their free memory where all of them tell it."""
    devices = _objects(gpu.get("devices"))
    if not devices:
        return None
    names = [str(device.get("name")) for device in devices]
    said = ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names))
    free = [device.get("memory_free_bytes") for device in devices]
    told = [each for each in free if isinstance(each, int)]
    if len(told) == len(devices):
        said += f", {sum(told) / _GIB:.1f} GiB free"
    problems = [str(device["problem"]) for device in devices if device.get("problem")]
    return "; ".join([said, *problems])


def _models(servers: Iterable[Json]) -> Iterator[Sequence[object]]:
    for server in servers:
        for model in _objects(server.get("models")):
            names = [model.get("name"), *_list(model.get("aliases"))]
            state = _marked(str(model.get("state")))
            if model.get("as_last_seen"):
                state = _Safe(f"{_text(model.get('state'))}, last seen")
            yield (
                server.get("node"),
                ", ".join(map(str, names)),
                model.get("model_type"),
                state,
                _reason(model),
                model.get("in_flight"),
            )


def _reason(model: Json) -> str:
    said = str(model.get("reason"))
    if target := _object(model.get("target")):
        said += f"; coming: {target.get('state')}, {target.get('reason')}"
    return said


def _nowhere(view: Json, servers: Sequence[Json]) -> Iterator[Sequence[object]]:
    """With the reason of the node that is asked, where it says one."""
    had = {str(model.get("name")) for one in servers for model in _objects(one.get("models"))}
    asked_last = sorted(servers, key=lambda server: server.get("node") == view.get("self_node"))
    found = {
        str(other.get("name")): other.get("reason")
        for server in asked_last
        for other in _objects(server.get("elsewhere"))
    }
    yield from ((name, why) for name, why in sorted(found.items()) if name not in had)


def _conditions(servers: Iterable[Json]) -> Iterator[Sequence[object]]:
    """Those of a node that cannot be reached are old."""
    for server in filter(_is_there, servers):
        for each in _objects(server.get("conditions")):
            bad = "True" if str(each.get("type")) in ABNORMAL_IF_TRUE else "False"
            if each.get("status") in (bad, "Unknown"):
                told = f"{each.get('type')} is {each.get('status')}"
                yield server.get("node"), told, *map(each.get, ("reason", "message", "since"))


def _skew(view: Json) -> Iterator[Sequence[object]]:
    revisions = _object(view.get("revisions"))
    if len(revisions) > 1:
        for revision, nodes in revisions.items():
            yield revision[:12], ", ".join(map(str, _list(nodes)))


def _marked(state: str) -> _Safe:
    return _Safe(f'<span class="{_CLASSES.get(state, "so")}">{_text(state)}</span>')


def _is_there(server: Json) -> bool:
    return bool(server.get("reachable", True))


def _text(value: object) -> str:
    if isinstance(value, _Safe):
        return value
    return "–" if value is None else escape(str(value))


def _object(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _objects(value: object) -> list[Json]:
    return [each for each in _list(value) if isinstance(each, dict)]
