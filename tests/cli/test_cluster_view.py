"""A cluster as `status` shows it."""

import io
from typing import Any

import pytest
from rich.console import Console

from reconciler.cli.checks.agent import nowhere_findings, view_findings
from reconciler.cli.checks.finding import Level
from reconciler.cli.cluster_view import only
from reconciler.cli.status_view import render
from reconciler.cli.watch import _states
from reconciler.errors import Rejected


def _server(node: str = "node-a", **more: Any) -> dict[str, Any]:
    given = {"node": node, "reachable": True, "ready": True, "heard_seconds": 1.0, "conditions": []}
    return {**given, "models": [], "loaded_models": [], **more}


def _model(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "state": "loaded", "reason": "serves", "in_flight": 2, **more}


def _lost(node: str = "node-b", **more: Any) -> dict[str, Any]:
    last = [_model("llm", as_last_seen=True)]
    given = {"reachable": False, "reason": "refuses connections", "models": last}
    return _server(node, **{**given, **more})


def _shown(*servers: dict[str, Any]) -> list[str]:
    out = Console(file=io.StringIO(), width=160, color_system=None)
    with out.capture() as captured:
        out.print(render({"servers": servers, "self_node": "node-a"}, width=160))
    return [" ".join(line.split()) for line in captured.get().splitlines()]


def test_each_node_has_a_line() -> None:
    gpu = {"type": "nvidia", "count": 2, "devices": []}
    models = [_model("llm"), _model("off", state="disabled", enabled=False), _model("slow")]
    full = _server(gpu=gpu, revision={"applied": "a" * 40}, models=models, loaded_models=models[:1])
    lines = _shown(full, _lost(heard_seconds=75.0, unreachable_since="2026-03-01T12:00:00+00:00"))
    assert lines[0] == "NODE AGENT MANIFEST GPUS READY BUSY HEARD WHY"
    assert lines[1] == f"node-a ready {'a' * 12} 2 nvidia 1/2 2 1 s"
    assert lines[2].startswith("node-b unreachable - - - - ")
    assert " refuses connections since " in lines[2]


def test_models_of_a_node_that_is_gone_do_not_look_as_if_they_served() -> None:
    lines = _shown(_server(), _lost())
    assert any(line.startswith("node-b llm loaded, last seen") for line in lines)


def test_one_that_was_never_seen_is_told_by_its_address() -> None:
    lines = _shown(_server(), _lost("unknown", address="10.0.0.7:8000", heard_seconds=None))
    assert any(
        line.startswith("unknown (10.0.0.7:8000) unreachable") and " never " in line
        for line in lines
    )


def test_a_lone_node_that_cannot_be_reached_says_so() -> None:
    said = "node-b cannot be reached: refuses connections; its models are as they were seen last"
    assert said in _shown(_lost())


@pytest.mark.parametrize(
    ("state", "more"),
    [
        ("draining", {"draining": True}),
        ("starting", {"ready": False}),
        ("silent", {"loop": {"silent": True}}),
    ],
)
def test_how_an_agent_stands_is_a_word(state: str, more: dict[str, Any]) -> None:
    assert _shown(_server(), _server("node-b", **more))[2].startswith(f"node-b {state}")


@pytest.mark.parametrize("name", ["node-b", "pod-b", "10.0.0.2", "10.0.0.2:8000"])
def test_one_node_can_be_asked_for(name: str) -> None:
    place = {"pod_ip": "10.0.0.2", "address": "10.0.0.2:8000"}
    view = {"servers": [_server(), _server("node-b", pod_name="pod-b", **place)]}
    assert [each["node"] for each in only(view, name)["servers"]] == ["node-b"]


@pytest.mark.parametrize("name", ["127.0.77.3", "127.0.77.3:8000", "::ffff:127.0.77.3"])
def test_off_kubernetes_its_address_is_an_ip_too(name: str) -> None:
    places = {"node-a": "127.0.77.1:8000", "node-b": "127.0.77.3:8000"}
    view = {"servers": [_server(node, pod_ip=None, address=at) for node, at in places.items()]}
    assert [each["node"] for each in only(view, name)["servers"]] == ["node-b"]
    with pytest.raises(Rejected):
        only(view, "127.0.77.3:8001")


def test_agents_of_one_name_are_told_apart_by_their_addresses() -> None:
    twins = [_server(address=f"10.0.0.{number}:8000", models=[_model("llm")]) for number in (1, 2)]
    lines = _shown(*only({"servers": twins}, "node-a")["servers"])
    for number in (1, 2):
        rows = [line for line in lines if line.startswith(f"node-a (10.0.0.{number}:8000) ")]
        assert len(rows) == 2
    keys = _states({"servers": twins}).keys()
    assert ("node-a (10.0.0.2:8000)",) in keys
    assert len(keys) == 4


def test_doctor_names_the_address_of_each_agent() -> None:
    others = [
        _server("node-b", address="10.0.0.2:8000"),
        _server("node-b", address="10.0.0.3:8000"),
        _lost("node-c", address="10.0.0.4:8000"),
        _lost("unknown", address="10.0.0.5:8000", heard_seconds=None),
    ]
    view = {"servers": [_server(address="10.0.0.1:8000"), *others], "self_node": "node-a"}
    found = [*view_findings(view, "http://[::1]:8000")]
    assert [each.subject for each in found] == [
        "agent of node-a",
        "agent of node-b (10.0.0.2:8000)",
        "agent of node-b (10.0.0.3:8000)",
        "agent of node-c",
        "agent of unknown (10.0.0.5:8000)",
    ]
    assert [each.said.partition(",")[0] for each in found[:3]] == [
        "http://[::1]:8000",
        "10.0.0.2:8000",
        "10.0.0.3:8000",
    ]
    said = "cannot be reached at 10.0.0.4:8000: it refuses connections"
    assert [each.said for each in found[3:]] == [
        said,
        "cannot be reached at 10.0.0.5:8000: it refuses connections; it has never answered",
    ]
    assert all("start the agent there" in str(each.next) for each in found[3:])


def test_an_unknown_node_lists_those_there_are() -> None:
    with pytest.raises(Rejected, match="cannot show node x: the agent knows node-a, node-b"):
        only({"servers": [_server(), _lost()]}, "x")


def test_a_watch_tells_of_nodes_that_go() -> None:
    states = _states({"servers": [_server(), _lost()]})
    assert states["node-a",] == "can be reached"
    assert states["node-b",] == "cannot be reached: refuses connections"
    assert ("node-a",) not in _states({"servers": [_server()]})


def _elsewhere(*names: str) -> list[dict[str, str]]:
    return [{"name": name, "reason": "nodes: [zed]; this node is node-a"} for name in names]


def test_a_model_that_no_node_has_is_told() -> None:
    """Its node's name was mistyped, say: else nobody would see it at all."""
    one, other = _server(elsewhere=_elsewhere("llm", "lost")), _server("node-b")
    other["models"] = [_model("llm")]
    told = "lost is in the manifest, and runs at no node: nodes: [zed]; this node is node-a"
    assert [line for line in _shown(one, other) if "at no node" in line] == [told]
    assert not any("at no node" in line for line in _shown(one))
    (finding,) = nowhere_findings({"servers": [one, other]})
    assert (finding.level, finding.subject) == (Level.WARN, "model lost")
    assert "that there are (node-a, node-b)" in str(finding.next)
    assert not [*nowhere_findings({"servers": [one]})]


def test_of_a_model_that_no_node_has_the_asked_node_says_why() -> None:
    servers = []
    for node in ("node-0", "node-a", "node-b"):
        other = {"name": "llm", "reason": f"nodes: [zed]; this node is {node}"}
        servers.append(_server(node, elsewhere=[other]))
    (told,) = [line for line in _shown(*servers) if "at no node" in line]
    assert told.endswith("this node is node-a")


def test_what_is_said_of_a_model_names_its_node_among_several() -> None:
    loud = _model("emb", warnings=["the GGUF names no pooling"], last_lines=["bye"])
    one, other = _server(models=[loud]), _server("node-b")
    lines = _shown(one, other)
    assert "emb on node-a: the GGUF names no pooling" in lines
    assert "last lines of emb on node-a:" in lines
    assert "emb: the GGUF names no pooling" in _shown(one)
