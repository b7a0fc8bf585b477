"""`X-Target-Server` and `?server=` over a real network: by node, by pod's name, by IP address."""

import json
import sys
from collections.abc import Callable

import httpx
import openai
import pytest

from tests.cluster.agents import Cluster, Member
from tests.e2e.agent import Entry
from tests.e2e.clients import HELLO, TOKENS
from tests.e2e.manifests import manifest, model
from tests.waiting import wait_until

pytestmark = [pytest.mark.net, pytest.mark.timeout(240)]

_ASK = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode())"
NAMES_OF: dict[str, Callable[[Member], str]] = {
    "node": lambda member: member.node,
    "pod": lambda member: member.pod_name,
    "ip": lambda member: member.host.ipv4,
}


@pytest.fixture
def cluster(lasting_cluster: Cluster) -> Cluster:
    """Every node serves `everywhere`; c serves `on-c` and `endless`, too."""
    endless = '{STAND_IN: "--probe-well --chunks 100000 --chunk-interval 0.05"}'
    lasting_cluster.write(
        manifest(
            model("everywhere", nodes="all"),
            model("on-c", nodes="[node-c]"),
            model("endless", nodes="[node-c]", env=endless),
        )
    )
    lasting_cluster.heal()
    for member in lasting_cluster.members.values():
        member.wait_serving("everywhere", "node-a", "node-b", "node-c")
        member.wait_serving("on-c", "node-c")
        member.wait_serving("endless", "node-c")
    return lasting_cluster


@pytest.mark.parametrize("kind", NAMES_OF)
def test_whoever_is_named_answers(cluster: Cluster, kind: str) -> None:
    for asked in cluster.members.values():
        for member in cluster.members.values():
            name = NAMES_OF[kind](member)
            by_header = asked.client.get(
                f"{asked.url}/api/cluster/_self", headers={"X-Target-Server": name}
            )
            by_query = asked.client.get(f"{asked.url}/api/cluster/_self", params={"server": name})
            assert by_header.json()["node"] == by_query.json()["node"] == member.node
            answer = asked.post("/v1/chat/completions", _question("everywhere"), **_at(name))
            assert answer.headers["x-served-by"] == f"{member.node}/everywhere"


def test_the_header_counts_where_both_are_given(cluster: Cluster) -> None:
    a = cluster.members["a"]
    answer = a.client.get(f"{a.url}/api/cluster/_self?server=node-b", headers=_at("node-c"))
    assert answer.json()["node"] == "node-c"


def test_an_unknown_target_is_refused_with_the_nodes_that_there_are(cluster: Cluster) -> None:
    answer = cluster.members["a"].post(
        "/v1/chat/completions", _question("everywhere"), **_at("node-x")
    )
    assert answer.status_code == 404
    for node in ("node-a", "node-b", "node-c"):
        assert node in answer.json()["error"]["message"]


def test_a_target_without_the_model_answers_itself(cluster: Cluster) -> None:
    answer = cluster.members["a"].post("/v1/chat/completions", _question("on-c"), **_at("node-b"))
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"


def test_each_node_says_itself_whether_it_is_healthy(cluster: Cluster) -> None:
    a = cluster.members["a"]
    cluster.members["c"].kill()
    for path in ("/healthz", "/readyz", "/metrics"):
        assert a.client.get(f"{a.url}{path}", headers=_at("node-c")).status_code == 200


def test_the_sdk_streams_and_asks_through_another_node(cluster: Cluster) -> None:
    a = cluster.members["a"]
    with openai.OpenAI(
        base_url=f"{a.url}/v1", api_key="none", max_retries=0, default_headers=_at("node-c")
    ) as client:
        said = client.chat.completions.create(model="on-c", messages=HELLO)
        assert said.choices[0].message.content == TOKENS
        stream = client.chat.completions.create(model="on-c", messages=HELLO, stream=True)
        assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == TOKENS
        assert "on-c" in {each.id for each in client.models.list()}


def test_a_client_that_leaves_frees_the_engine_behind_two_agents(cluster: Cluster) -> None:
    a, c = cluster.members["a"], cluster.members["c"]
    body = {**_question("endless"), "stream": True}
    with a.client.stream(
        "POST", f"{a.url}/v1/chat/completions", json=body, headers=_at("node-c")
    ) as answer:
        lines = answer.iter_lines()  # held: a dropped iterator closes the connection
        assert next(lines)
        wait_until(lambda: _engine(c, "endless")["running"] == 1, what="the engine works")
    wait_until(lambda: _engine(c, "endless")["running"] == 0, what="the engine is free")


def test_a_target_that_dies_in_mid_stream_ends_it_with_an_error(cluster: Cluster) -> None:
    a, c = cluster.members["a"], cluster.members["c"]
    told: list[str] = []
    body = {**_question("endless"), "stream": True}

    def read() -> None:
        with a.client.stream(
            "POST", f"{a.url}/v1/chat/completions", json=body, headers=_at("node-c")
        ) as answer:
            for line in answer.iter_lines():
                if not told:
                    c.die()
                told.append(line)

    with pytest.raises(httpx.RemoteProtocolError):
        read()
    last = [line for line in told if line.startswith("data: ")][-1]
    assert "node-c" in json.loads(last.removeprefix("data: "))["error"]["message"]


@pytest.mark.slow
def test_a_target_whose_link_is_cut_in_mid_stream_ends_it_with_an_error(cluster: Cluster) -> None:
    """No reset comes: that it is silent is noticed by itself, after half a minute."""
    a = cluster.members["a"]
    told: list[str] = []
    body = {**_question("endless"), "stream": True}

    def read() -> None:
        with httpx.stream(
            "POST", f"{a.url}/v1/chat/completions", json=body, headers=_at("node-c"), timeout=120
        ) as answer:
            for line in answer.iter_lines():
                if not told:
                    cluster.network.cut("c")
                told.append(line)

    with pytest.raises(httpx.RemoteProtocolError):
        read()
    last = [line for line in told if line.startswith("data: ")][-1]
    assert "node-c" in json.loads(last.removeprefix("data: "))["error"]["message"]
    cluster.network.mend("c")
    engine = cluster.members["c"]
    free = "the engine is free, once what it said last was sent again"
    wait_until(lambda: _engine(engine, "endless")["running"] == 0, what=free, seconds=120)


def test_a_target_that_is_out_of_reach_is_said_to_be(cluster: Cluster) -> None:
    cluster.network.cut("c")
    answer = cluster.members["a"].post("/v1/chat/completions", _question("on-c"), **_at("node-c"))
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "peer_unreachable"
    assert answer.headers["x-xgen-not-started"] == "1"
    assert "node-c" in answer.json()["error"]["message"]


def _question(name: str) -> Entry:
    return {"model": name, "messages": HELLO}


def _at(name: str) -> dict[str, str]:
    return {"X-Target-Server": name}


def _engine(member: Member, name: str) -> Entry:
    """What it counts itself; only its own host can ask it."""
    entry = member.model(name)
    assert entry is not None
    url = f"http://127.0.0.1:{entry['port']}/debug/state"
    counts: Entry = json.loads(member.host.run(sys.executable, "-c", _ASK, url).stdout)
    return counts
