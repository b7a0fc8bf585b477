"""`/cluster` for browsers: what it shows, and that nothing that it shows is obeyed."""

import base64
import hashlib
import re
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from reconciler.plan.ids import NodeName
from reconciler.plan.peering import Address
from reconciler.proxy.cluster_page import page
from reconciler.proxy.peers.peer import Peer
from tests.proxy.agent import running_agent
from tests.proxy.builders import model
from tests.proxy.fleet import Mates, raw_peer

_BROWSER = {"Accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
_EVIL = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&lt;b>"
_HEAD = {"html", "head", "meta", "title", "style", "body", "h1", "h2", "p", "a", "span"}
_TAGS = {*_HEAD, "table", "thead", "tbody", "tr", "th", "td"}


class _Read(HTMLParser):
    """As a browser takes it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.links: list[str] = []
        self.texts: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.links += [str(value) for name, value in attrs if name == "href"]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def _read(view: dict[str, Any]) -> _Read:
    return _Read(page(msgspec.json.encode(view)).decode())


def _server(node: str = "node-a", **more: Any) -> dict[str, Any]:
    return {"node": node, "reachable": True, "ready": True, **more}


def _is_harmless(read: _Read) -> bool:
    known = {"lang", "charset", "name", "content", "http-equiv", "scope", "class", "href"}
    places = all(link.startswith("/api/cluster/") for link in read.links)
    return read.tags <= _TAGS and read.attributes <= known and places


def test_markup_in_names_and_reasons_is_shown_and_never_obeyed() -> None:
    bad = {"name": _EVIL, "aliases": [_EVIL], "state": _EVIL, "reason": _EVIL, "model_type": _EVIL}
    condition = {"type": _EVIL, "status": "Unknown", "reason": _EVIL, "message": _EVIL}
    device = {"name": _EVIL, "problem": _EVIL}
    server = _server(
        _EVIL,
        address=_EVIL,
        unknown_because=_EVIL,
        revision={"applied": _EVIL},
        gpu={"devices": [device]},
        models=[{**bad, "target": bad}],
        conditions=[condition],
        elsewhere=[{"name": f"{_EVIL}2", "reason": _EVIL}],
    )
    away = _server(reachable=False, reason=_EVIL, unreachable_since=_EVIL)
    revisions = {_EVIL: [_EVIL], "b": []}
    read = _read({"servers": [server, away], "self_node": _EVIL, "revisions": revisions})
    assert _is_harmless(read)
    assert read.texts.count(_EVIL) >= 10
    assert not any(_EVIL in link for link in read.links)


_JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.text(alphabet="<>&\"'=/ab;")
    | st.floats(0, 1),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
_FIELDS = (
    "node address reachable ready draining loop revision gpu models loaded_models conditions "
    "elsewhere name aliases state reason target type status devices applied in_flight"
)
_OBJECT = st.dictionaries(st.sampled_from(_FIELDS.split()), _JSON | st.lists(_JSON))
_NESTED = st.fixed_dictionaries(
    {}, optional={name: st.lists(_OBJECT, max_size=2) for name in ("models", "conditions", "gpu")}
)


@given(st.lists(st.builds(lambda one, other: {**one, **other}, _OBJECT, _NESTED)), _JSON)
def test_whatever_form_an_agents_answer_has_it_is_shown(servers: Any, revisions: Any) -> None:
    """A later release may say what it wants."""
    assert _is_harmless(_read({"servers": servers, "self_node": "a", "revisions": revisions}))


def test_what_an_operator_looks_for_is_there() -> None:
    device = {"name": "NVIDIA L4", "memory_free_bytes": 12 << 30}
    loaded: dict[str, Any] = {
        "name": "llm",
        "aliases": ["gpt"],
        "state": "loaded",
        "reason": "serves",
    }
    loaded |= {"model_type": "llm", "in_flight": 3}
    conditions = [
        {"type": "Ready", "status": "False", "reason": "Loading", "message": "big loads"},
        {"type": "Stalled", "status": "True", "reason": "Blocked", "message": "a block"},
        {"type": "SourceReady", "status": "True", "reason": "Read", "message": "all is well"},
        {"type": "Degraded", "status": "False", "reason": "AsWanted", "message": "all is fine"},
    ]
    a = _server(
        address="10.0.0.1:8000",
        revision={"applied": "9614c83" * 5},
        gpu={"devices": [device, device]},
        models=[loaded, {"name": "big", "state": "loading", "reason": "reads its files"}],
        loaded_models=[loaded],
        conditions=conditions,
        elsewhere=[{"name": "lost", "reason": "nodes: [zed]"}, {"name": "emb", "reason": "x"}],
    )
    last = {"name": "emb", "state": "loaded", "reason": "serves", "as_last_seen": True}
    b = _server("node-b", reachable=False, reason="refuses connections", models=[last])
    read = _read(
        {"servers": [a, b], "self_node": "node-a", "revisions": {"r1": ["node-a"], "r2": ["c"]}}
    )
    said = "|".join(read.texts)
    for text in (
        "2 nodes, 1 of them cannot be reached",
        "node-a|10.0.0.1:8000|ready|–|9614c839614c|2 × NVIDIA L4, 24.0 GiB free|1 of 2|3",
        "node-b|–|unreachable|refuses connections|–|–|–|–",
        "node-a|llm, gpt|llm|loaded|serves|3",
        "node-a|big|–|loading|reads its files|–",
        "node-b|emb|–|loaded, last seen|serves|–",
        "lost|nodes: [zed]|",
        "Ready is False|Loading|big loads",
        "Stalled is True|Blocked|a block",
        "r1|node-a|r2|c",
    ):
        assert text in said
    assert "all is" not in said
    assert "emb|x" not in said
    assert "/api/cluster/_self?server=node-a" in read.links
    assert "/api/cluster/servers" in read.links


async def test_browsers_get_the_page_and_all_others_json() -> None:
    peer = replace(
        raw_peer(9, model("llm"), node=_EVIL),
        document=msgspec.json.encode({"node": _EVIL, "models": [{"name": _EVIL}]}),
    )
    lost = Peer(address=Address(host="10.0.0.9", port=8000), document=b"", because=_EVIL)
    mates = Mates(raw=[peer, replace(lost, node=NodeName("z"))])
    async with running_agent(model("own", reason=_EVIL), cluster=mates.side()) as agent:
        html = await agent.get("/cluster", headers=_BROWSER)
        assert (html.status, html.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert html.headers["vary"] == "accept"
        policy = html.headers["content-security-policy"]
        assert re.fullmatch(r"default-src 'none'; .*; style-src 'sha256-[\w+/]{43}='", policy)
        read = _Read(html.body.decode())
        assert _is_harmless(read)
        assert _EVIL in read.texts
        style = html.body.partition(b"<style>")[2].partition(b"</style>")[0]
        assert base64.b64encode(hashlib.sha256(style).digest()).decode() in policy
        for accept in ({}, {"Accept": "*/*"}, {"Accept": "application/json"}):
            plain = await agent.get("/cluster", headers=accept)
            assert (plain.headers["content-type"], plain.headers["vary"]) == (
                "application/json",
                "accept",
            )
            assert plain.json["self_node"] == "node-a"
        api = await agent.get("/api/cluster/servers", headers=_BROWSER)
        assert api.headers["content-type"] == "application/json"


async def test_a_page_that_a_browser_has_is_not_sent_again() -> None:
    async with running_agent(model("llm", port=7)) as agent:
        first = (await agent.get("/cluster", headers=_BROWSER)).headers["etag"]
        plain = (await agent.get("/cluster")).headers["etag"]
        assert first != plain
        for given in (first, f'"x", {first}', first.removeprefix("W/"), "*"):
            again = await agent.get("/cluster", headers={**_BROWSER, "If-None-Match": given})
            assert (again.status, again.body, again.headers["vary"]) == (304, b"", "accept")
        other = await agent.get("/cluster", headers={**_BROWSER, "If-None-Match": plain})
        assert other.status == 200
        agent.board.set(model("llm"))
        new = await agent.get("/cluster", headers={**_BROWSER, "If-None-Match": first})
        assert new.status == 200
