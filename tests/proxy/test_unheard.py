"""What a node says of models that may be at nodes of which it knows nothing yet."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from reconciler.plan.desired import Elsewhere, ModelType
from reconciler.plan.ids import ModelName, NodeName
from reconciler.proxy.errors import UNSURE_SECONDS, Problem
from reconciler.proxy.peers.peer import Peer, Peers, Unheard
from reconciler.proxy.route_table import build, choose
from reconciler.status import Revision, Status
from tests.proxy.agent import running_agent
from tests.proxy.builders import model, status
from tests.proxy.pair import Known, peer

NOW = 1_000_000.0
REFUSES = "127.0.0.1:9 refuses connections"


def unseen(seconds: float = 0.0) -> Peer:
    """Listed for so long."""
    since = datetime.fromtimestamp(NOW - seconds, UTC).isoformat()
    return peer(9, None, reachable=False, because="refuses connections", since=since)


def seen() -> Peer:
    return peer(8, "node-b", applied="r")


def placed(*nodes: str) -> Status:
    """Its manifest has `a` for other nodes."""
    other = Elsewhere(name=ModelName("a"), reason="why", aliases=("x",), nodes=nodes)
    return replace(status(), elsewhere=(other,), revision=Revision(applied="r"))


def refused(own: Status, peers: Peers, named: str | None) -> Problem:
    problem = choose(build(own, peers), named, (ModelType.LLM,), now=NOW)
    assert isinstance(problem, Problem)
    return problem


def comes_again(problem: Problem) -> bool:
    headers: Mapping[bytes, bytes] = dict(problem.headers)
    return b"retry-after" in headers and b"x-should-retry" not in headers


@pytest.mark.parametrize("named", ["a", "x"])
@pytest.mark.parametrize("seconds", [0, 1e6])
def test_a_model_of_a_node_that_was_never_seen_is_waited_for(named: str, seconds: float) -> None:
    peers = Peers(all=(seen(), unseen(seconds)))
    problem = refused(placed("node-b", "zed"), peers, named)
    assert (problem.status, problem.code, problem.model) == (503, "model_not_ready", "a")
    assert comes_again(problem)
    assert f"has it for zed, of which nothing is known yet: {REFUSES}" in problem.message


def test_a_place_of_peers_that_led_nowhere_yet_may_be_that_node() -> None:
    peers = Peers(unfound=(Unheard(cause="cannot look up agents: why", since="2026-01-01T00:00Z"),))
    problem = refused(placed("zed"), peers, "a")
    assert (problem.status, comes_again(problem)) == (503, True)
    assert "cannot look up agents: why" in problem.message


def test_with_all_nodes_known_it_is_a_mistake_in_the_manifest() -> None:
    problem = refused(placed("zed"), Peers(all=(seen(),)), "a")
    assert (problem.status, problem.code) == (404, "model_not_found")
    assert "no known node is called zed" in problem.message


@pytest.mark.parametrize("nodes", [("node-b",), ()])
def test_a_model_that_names_no_unknown_node_waits_for_none(nodes: tuple[str, ...]) -> None:
    assert refused(placed(*nodes), Peers(all=(seen(), unseen())), "a").status == 404


@pytest.mark.parametrize(
    ("seconds", "status", "code"),
    [(0, 503, "model_not_ready"), (59, 503, "model_not_ready"), (61, 404, "model_not_found")],
)
def test_an_unknown_name_may_be_that_of_a_node_to_come(
    seconds: float, status: int, code: str
) -> None:
    problem = refused(placed(), Peers(all=(seen(), unseen(seconds))), "y" * 1000)
    assert (problem.status, problem.code, problem.model) == (status, code, None)
    assert len(problem.message) < 500
    assert comes_again(problem) is (status == 503)
    assert refused(placed(), Peers(all=(seen(),)), "y").status == 404


def test_the_only_model_of_a_type_may_be_there_too() -> None:
    peers = Peers(all=(seen(), unseen(1e6)))
    problem = refused(placed(), peers, None)
    assert (problem.status, problem.code) == (503, "no_model_of_type")
    assert comes_again(problem)
    assert REFUSES in problem.message
    for known, who in ((Peers(all=(seen(),)), "the cluster"), (Peers(), "this node")):
        problem = refused(placed(), known, None)
        assert not comes_again(problem)
        assert f"{who} has no model of type llm" in problem.message


def _now_unseen(seconds: float) -> Peer:
    since = datetime.now(UTC) - timedelta(seconds=seconds)
    return replace(unseen(), since=since.isoformat())


async def test_all_that_tell_of_a_model_agree() -> None:
    known = Known(Peers(all=(_now_unseen(0),)))
    async with running_agent(cluster=known.side()) as agent:
        agent.board.put(replace(placed("zed"), node=NodeName("node-a")))
        for name in ("a", "x", "other"):
            answers = [
                await agent.chat({"model": name}),
                await agent.get(f"/v1/models/{name}"),
                await agent.get(f"/api/cluster/route?model={name}"),
            ]
            assert [each.status for each in answers] == [503] * 3
            assert len({each.error["message"] for each in answers}) == 1
        empty = await agent.get("/v1/models")
        assert (empty.status, empty.error["code"]) == (503, "node_starting")
        pinned = await agent.chat({"model": "a"}, headers={"X-Target-Server": "node-a"})
        assert pinned.status == 404
        known.peers = Peers(all=(_now_unseen(UNSURE_SECONDS + 1),))
        assert (await agent.get("/v1/models")).json["data"] == []
        assert (await agent.chat({"model": "other"})).status == 404
        agent.board.set(model("llm", port=1))
        assert [each["id"] for each in (await agent.get("/v1/models")).json["data"]] == ["llm"]
