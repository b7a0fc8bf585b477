"""One agent follows another, both on real sockets."""

from dataclasses import replace

from reconciler.plan.ids import ModelName, NodeName
from tests.proxy.agent import Agent, running_agent
from tests.proxy.builders import model
from tests.proxy.peers.members import following, local


def _call(agent: Agent, node: str) -> None:
    agent.board.put(replace(agent.board.now, node=NodeName(node)))


async def test_a_peer_and_its_models_are_known() -> None:
    async with (
        running_agent(model("llm", port=7)) as other,
        following(local(other.port)) as follows,
        running_agent(cluster=follows.side) as agent,
    ):
        peer = await follows.until_seen()
        assert (peer.node, peer.because) == ("node-a", None)
        assert peer.models[ModelName("llm")].serves
        _call(agent, "node-b")
        view = (await agent.get("/api/cluster/servers")).json
    assert (view["count"], view["self_node"]) == (2, "node-b")
    (shown,) = [server for server in view["servers"] if server["node"] == "node-a"]
    assert shown["reachable"]
    assert [each["name"] for each in shown["loaded_models"]] == ["llm"]


async def test_a_change_comes_while_it_is_waited_for() -> None:
    async with running_agent() as other, following(local(other.port)) as follows:
        await follows.until_seen()
        other.board.set(model("llm", port=7))
        peer = await follows.until_one(lambda peer: bool(peer.models))
    assert peer.models[ModelName("llm")].serves_since is not None


async def test_one_that_ends_is_unreachable() -> None:
    async with (
        running_agent(model("llm", port=7)) as other,
        following(local(other.port)) as follows,
    ):
        await follows.until_seen()
        other.stop.set()
        await other.server
        lost = await follows.until_lost()
        assert lost.models[ModelName("llm")].serves
        assert lost.because is not None
