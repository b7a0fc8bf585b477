"""`X-Target-Server` and `?server=`, on a node without peers."""

from dataclasses import replace

import pytest
from multidict import CIMultiDict

from reconciler.plan.peering import Address
from reconciler.proxy.peers.own_address import own_address
from reconciler.proxy.peers.peer import Peer
from reconciler.proxy.peers.side import ALONE, ClusterSide
from tests.proxy.agent import running_agent
from tests.proxy.fleet import Mates
from tests.proxy.stand_in import StandIn


@pytest.mark.parametrize("name", ["node-a", "pod-a", "10.1.2.3"])
async def test_our_own_names_are_answered_here(llm: StandIn, name: str) -> None:
    async with running_agent(llm.as_model()) as agent:
        by_header = await agent.chat({"model": "llm"}, headers={"X-Target-Server": name})
        assert by_header.status == 200
        assert "x-target-server" not in dict(await llm.last_headers())
        assert (await agent.get(f"/api/cluster/_self?server={name}")).status == 200


async def test_off_kubernetes_the_addresses_that_are_listened_on_are_names_too() -> None:
    own = own_address(("127.0.0.1", 8000), [None])
    side = ClusterSide(peers=ALONE.peers, loads=ALONE.loads, own=own)
    async with running_agent(cluster=side) as agent:
        answer = await agent.get("/api/cluster/_self?server=127.0.0.1")
        assert (answer.status, answer.json["address"]) == (200, "127.0.0.1:8000")
        for place in ("127.0.0.2", "127.0.0.1:8001"):
            assert (await agent.get(f"/api/cluster/_self?server={place}")).status == 404
        named = await agent.get("/api/cluster/_self", headers={"X-Target-Server": "127.0.0.1:8000"})
        assert named.status == 200


async def test_of_several_agents_of_one_address_the_asked_one_is_meant_first() -> None:
    """Another one is listed at the same IP, and is gone, say."""
    dead = Peer(address=Address(host="127.0.0.1", port=9), document=b"")
    mates = Mates(raw=[dead])
    own = own_address(("127.0.0.1", 8000), [None])
    async with running_agent(cluster=replace(mates.side(), own=own)) as agent:
        answer = await agent.get("/api/cluster/_self?server=127.0.0.1")
        assert (answer.status, answer.json["address"]) == (200, "127.0.0.1:8000")
        assert (await agent.get("/api/cluster/_self?server=127.0.0.1:9")).status == 503


@pytest.mark.parametrize(
    ("query", "given", "said"),
    [
        ("?server=node-a&server=node-b", (), "'node-a' and 'node-b' are named"),
        ("", ("node-a", "node-b"), "'node-a' and 'node-b' are named"),
        ("?server=", (), "its name is empty"),
        ("?server=node-a", (" ",), "its name is empty"),
    ],
)
async def test_none_or_two_named_nodes_are_400(
    query: str, given: tuple[str, ...], said: str
) -> None:
    async with running_agent() as agent:
        named = CIMultiDict(("X-Target-Server", node) for node in given)
        answer = await agent.get(f"/v1/models{query}", headers=named)
        assert (answer.status, answer.error["code"]) == (400, "invalid_parameter")
        assert said in answer.error["message"]


async def test_a_node_that_is_named_twice_is_one() -> None:
    async with running_agent() as agent:
        named = CIMultiDict([("X-Target-Server", "node-a")] * 2)
        for path, given in (("/v1/models?server=node-a&server=node-a", {}), ("/v1/models", named)):
            assert (await agent.get(path, headers=given)).status == 200


@pytest.mark.parametrize("path", ["/v1/models", "/api/cluster/servers", "/api/cluster/_self"])
async def test_an_unknown_node_is_404_and_lists_the_nodes(path: str) -> None:
    async with running_agent() as agent:
        by_query = await agent.get(f"{path}?server=node-z")
        by_header = await agent.get(path, headers={"X-Target-Server": "node-z"})
        for answer in (by_query, by_header):
            assert (answer.status, answer.error["code"]) == (404, "node_not_found")
            assert "node-a" in answer.error["message"]


async def test_engine_paths_without_a_version_know_nodes_too(llm: StandIn) -> None:
    async with running_agent(llm.as_model()) as agent:
        other = await agent.chat({}, "/tokenize", headers={"X-Target-Server": "node-z"})
        here = await agent.chat({}, "/tokenize?server=node-a")
        assert (other.error["code"], here.status) == ("node_not_found", 200)


async def test_the_header_counts_where_both_are_given() -> None:
    async with running_agent() as agent:
        answer = await agent.get("/v1/models?server=no", headers={"X-Target-Server": "node-a"})
        assert answer.status == 200


async def test_an_escaped_query_key_is_understood() -> None:
    async with running_agent() as agent:
        assert (await agent.get("/v1/models?%73erver=node-z")).status == 404


async def test_health_is_always_our_own() -> None:
    async with running_agent() as agent:
        answer = await agent.get("/healthz?server=z", headers={"X-Target-Server": "z"})
        assert answer.status == 200
