"""The JSON of `/api/cluster/servers`, field by field (design §9), as three nodes give it."""

from typing import Any

import pytest

from tests.cluster.agents import Cluster
from tests.e2e.agent import Entry
from tests.e2e.manifests import manifest, model

pytestmark = [pytest.mark.net, pytest.mark.timeout(240)]

_BOTH = model("both", nodes="[node-a, node-b]", aliases="[gpt-4o-mini]")
_ON_C = model("on-c", nodes="[node-c]", type="embedding")
_STUCK = model("stuck", nodes="[node-c]", env='{STAND_IN: "--ready-after 3600"}')
_MODEL_FIELDS = {
    *("name", "aliases", "model_type", "backend", "state", "reason", "gpu_ids", "in_flight"),
    *("spec_hash", "digest", "pid", "target"),
}


@pytest.fixture
def cluster(lasting_cluster: Cluster) -> Cluster:
    lasting_cluster.write(manifest(_BOTH, _ON_C, _STUCK))
    lasting_cluster.heal()
    for member in lasting_cluster.members.values():
        member.wait_serving("both", "node-a", "node-b")
        member.wait_serving("on-c", "node-c")
        member.wait_view(lambda view: _state(view, "stuck") == "loading", what="stuck loads")
    return lasting_cluster


def _state(view: dict[str, Entry], name: str) -> str | None:
    return next((each["state"] for each in view["node-c"]["models"] if each["name"] == name), None)


def test_every_node_tells_the_same_of_all(cluster: Cluster) -> None:
    for name, member in cluster.members.items():
        body = _servers(cluster, name)
        assert body["api"] == 1
        assert body["self_node"] == member.node
        assert body["count"] == 3
        assert [each["node"] for each in body["servers"]] == ["node-a", "node-b", "node-c"]
        for server, other in zip(body["servers"], cluster.members.values(), strict=True):
            _judge_server(server, other.node, other.pod_name, other.host.ipv4)
            assert server["revision"] == body["servers"][0]["revision"]
        own = {each["type"]: each["status"] for each in member.self_view()["conditions"]}
        assert own["PeersFound"] == "True"
        _judge_models(body["servers"])


def _judge_server(server: Entry, node: str, pod_name: str, pod_ip: str) -> None:
    assert (server["node"], server["pod_name"], server["pod_ip"]) == (node, pod_name, pod_ip)
    assert server["reachable"] is True
    assert server["revision"]["applied"] == server["revision"]["attempted"]
    assert len(server["revision"]["applied"]) == 64
    gpu = server["gpu"]
    assert (gpu["type"], gpu["count"], gpu["devices"]) == ("cpu", 0, [])
    for condition in server["conditions"]:
        assert condition.keys() >= {"type", "status", "reason", "message", "since"}
    found = {each["type"]: each["status"] for each in server["conditions"]}
    assert found["ManifestValid"] == "True"


def _judge_models(servers: list[Entry]) -> None:
    assert [[each["name"] for each in server["models"]] for server in servers] == [
        ["both"],
        ["both"],
        ["on-c", "stuck"],
    ]
    for server in servers:
        loaded = [each for each in server["models"] if each["state"] == "loaded"]
        assert server["loaded_models"] == loaded
        for entry in server["models"]:
            assert entry.keys() >= _MODEL_FIELDS
            assert entry["spec_hash"]
            assert (entry["gpu_ids"], entry["in_flight"], entry["target"]) == ([], 0, None)
            assert entry["backend"] == "llama-server-cpu"
            assert isinstance(entry["pid"], int)
    both, again = (server["models"][0] for server in servers[:2])
    on_c, stuck = servers[2]["models"]
    assert (both["aliases"], both["model_type"]) == (["gpt-4o-mini"], "llm")
    assert (on_c["aliases"], on_c["model_type"]) == ([], "embedding")
    assert (on_c["state"], on_c["reason"]) == ("loaded", f"serves (pid {on_c['pid']})")
    assert stuck["state"] == "loading"
    assert both["digest"] == again["digest"] is not None
    assert both["spec_hash"] == again["spec_hash"]


def test_a_node_tells_of_itself_what_others_tell_of_it(cluster: Cluster) -> None:
    c = cluster.members["c"]
    own, told = c.self_view(), cluster.members["a"].view()["node-c"]
    for key in ("node", "pod_name", "pod_ip", "revision", "gpu", "agent_id"):
        assert own[key] == told[key], key
    of_the_cluster = [each for each in own["conditions"] if each not in told["conditions"]]
    assert [each["type"] for each in of_the_cluster] == ["PeersFound"]
    assert own["reachable"] is True
    for one, other in zip(own["models"], told["models"], strict=True):
        assert {key: one[key] for key in _MODEL_FIELDS} == {
            key: other[key] for key in _MODEL_FIELDS
        }


def test_cluster_is_the_same_for_who_wants_json(cluster: Cluster) -> None:
    a = cluster.members["a"]
    answer = a.client.get(f"{a.url}/cluster", headers={"Accept": "application/json"})
    assert [each["node"] for each in answer.json()["servers"]] == ["node-a", "node-b", "node-c"]


def test_a_node_that_was_seen_stays_listed_as_it_was(cluster: Cluster) -> None:
    cluster.members["c"].kill()
    gone = cluster.members["a"].wait_reachable("node-c", False)
    c = cluster.members["c"]
    assert (gone["pod_name"], gone["pod_ip"]) == (c.pod_name, c.host.ipv4)
    assert gone["loaded_models"] == []
    assert {each["name"]: each["as_last_seen"] for each in gone["models"]} == {
        "on-c": True,
        "stuck": True,
    }


def test_revisions_that_differ_are_told(cluster: Cluster) -> None:
    cluster.members["c"].write(manifest(_BOTH, _ON_C))
    view = cluster.members["a"].wait_view(
        lambda view: view["node-c"]["revision"] != view["node-a"]["revision"], what="c is ahead"
    )
    assert view["node-b"]["revision"] == view["node-a"]["revision"]
    cluster.members["b"].write("spec: {models: [")
    view = cluster.members["a"].wait_view(
        lambda view: (
            view["node-b"]["revision"]["applied"] != view["node-b"]["revision"]["attempted"]
        ),
        what="b has a revision that is refused",
    )
    valid = next(each for each in view["node-b"]["conditions"] if each["type"] == "ManifestValid")
    assert valid["status"] == "False"
    assert view["node-b"]["revision"]["applied"] == view["node-a"]["revision"]["applied"]


def test_who_was_never_seen_is_listed_as_unknown_with_the_reason(cluster: Cluster) -> None:
    """An address in DNS at which nobody is; sorted with the others, by node, then address.
    The last test: it stays listed for a minute."""
    nobody = cluster.network.bridge.ipv4
    cluster.names.tell(*cluster.addresses(), nobody)
    a = cluster.members["a"]
    a.wait_view(
        lambda view: bool(view.get("unknown", {}).get("reason")), what="the unknown is listed"
    )
    servers = _servers(cluster, "a")["servers"]
    assert [each["node"] for each in servers] == ["node-a", "node-b", "node-c", "unknown"]
    unknown = servers[-1]
    assert unknown["reachable"] is False
    assert unknown["loaded_models"] == []
    assert unknown["models"] == []
    assert (unknown["pod_name"], unknown["pod_ip"]) == (None, None)
    assert unknown["revision"] == {"applied": None, "attempted": None}
    assert "refuses connections" in unknown["reason"]
    assert unknown["address"] == f"{nobody}:8000"


def _servers(cluster: Cluster, name: str) -> dict[str, Any]:
    member = cluster.members[name]
    body: dict[str, Any] = member.client.get(f"{member.url}/api/cluster/servers").json()
    return body
