"""`/api/cluster/servers`: every node, what is known of it, and what befell it."""

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest
from starlette.types import Message

from reconciler.plan.ids import ModelName
from reconciler.plan.peering import Address
from reconciler.proxy.cluster import Servers
from reconciler.proxy.inflight import Traffic
from reconciler.proxy.local_loads import UNTOLD, LocalLoads
from reconciler.proxy.peers.bulletin import Bulletin
from reconciler.proxy.peers.load import ModelLoad
from reconciler.proxy.peers.peer import Peers
from reconciler.proxy.turns import Turns
from tests.proxy.agent import running_agent
from tests.proxy.builders import STEADY, Board, model, status
from tests.proxy.pair import Known, peer
from tests.proxy.peers.members import Follows, following
from tests.proxy.peers.raw_peer import as_json, raw_peer, says
from tests.proxy.peers.stub_peer import StubPeer, model_entry, stub_peers

_OF_EVERY_SERVER = {
    "node",
    "pod_name",
    "pod_ip",
    "reachable",
    "reason",
    "address",
    "heard_seconds",
    "revision",
    "gpu",
    "models",
    "loaded_models",
    "conditions",
}


async def _view(follows: Follows) -> Any:
    async with running_agent(model("own", port=7), cluster=follows.side) as agent:
        return (await agent.get("/api/cluster/servers")).json


def _server(view: Any, node: str) -> Any:
    (found,) = [server for server in view["servers"] if server["node"] == node]
    return found


async def test_servers_are_sorted_and_have_every_field() -> None:
    peers = [
        StubPeer(node="node-b", agent_id="1", fields={"pod_ip": "10.0.0.2"}),
        StubPeer(node="node-b", agent_id="2", fields={"pod_ip": "10.0.0.1"}),
        StubPeer(node="a-node", agent_id="3"),
    ]
    async with stub_peers(peers) as addresses, following(*addresses) as follows:
        await follows.until_all_seen(3)
        view = await _view(follows)
    assert [(each["node"], each["pod_ip"]) for each in view["servers"]] == [
        ("a-node", None),
        ("node-a", "10.1.2.3"),
        ("node-b", "10.0.0.1"),
        ("node-b", "10.0.0.2"),
    ]
    assert (view["api"], view["count"], view["self_node"]) == (1, 4, "node-a")
    assert [_OF_EVERY_SERVER - each.keys() for each in view["servers"]] == [set()] * 4


async def test_the_models_of_one_that_is_gone_are_shown_as_last_seen() -> None:
    """production-stack#656, #1091: dead pods stayed in the list as if they served."""
    peer = StubPeer(node="node-b")
    peer.serve(model_entry("llm"))
    async with following() as follows:
        async with stub_peers([peer]) as addresses:
            follows.members.addresses = addresses
            await follows.until_seen()
        await follows.until_lost()
        shown = _server(await _view(follows), "node-b")
    assert (shown["reachable"], shown["loaded_models"]) == (False, [])
    assert shown["reason"] in ("refuses connections", "reset the connection")
    assert shown["unreachable_since"].startswith("at ")
    (last,) = shown["models"]
    assert (last["name"], last["state"], last["as_last_seen"]) == ("llm", "loaded", True)


async def test_one_that_was_never_seen_is_listed_as_unknown() -> None:
    async with raw_peer(says(b"")) as address, following(address) as follows:
        await follows.until_lost()
        view = await _view(follows)
    shown = _server(view, "unknown")
    assert (shown["address"], shown["reachable"]) == (str(address), False)
    assert (shown["models"], shown["loaded_models"], shown["heard_seconds"]) == ([], [], None)
    assert shown["reason"] == "ended the connection before its answer was complete"


async def test_requests_in_flight_are_those_heard_of_last() -> None:
    peer = StubPeer(node="node-b")
    peer.serve(model_entry("llm", in_flight=1))
    async with stub_peers([peer]) as addresses, following(*addresses) as follows:
        name, address = ModelName("llm"), addresses[0]
        await follows.until_seen()
        assert follows.followed.load(address, name) == ModelLoad(in_flight=1)
        follows.followed.heard(address, name, ModelLoad(in_flight=5, queued=2))
        (shown,) = _server(await _view(follows), "node-b")["loaded_models"]
        peer.load = {"llm": {"in_flight": 7}}
        await follows.until(lambda: follows.followed.load(address, name).in_flight == 7 or None)
    assert (shown["in_flight"], shown["load"]["queued"]) == (5, 2)


async def test_a_bad_entry_loses_only_itself_and_new_fields_stay() -> None:
    entry = model_entry("llm", of_a_later_release={"x": 1}, affinity="telepathy")
    fields = {"models": [7, {"name": "?"}, entry], "loaded_models": [entry], "draining": "maybe"}
    async with (
        raw_peer(says(as_json(node="node-b", agent_id="x", version=1, **fields))) as address,
        following(address) as follows,
    ):
        peer = await follows.until_seen()
        shown = _server(await _view(follows), "node-b")
    assert list(peer.models) == ["llm"]
    assert peer.models[ModelName("llm")].serves
    assert shown["loaded_models"][0]["of_a_later_release"] == {"x": 1}


async def test_one_that_has_left_goes_from_the_view() -> None:
    peer = StubPeer(node="node-b")
    async with following(gone_seconds=0.0) as follows:
        async with stub_peers([peer]) as addresses:
            follows.members.addresses = addresses
            await follows.until_seen()
        await follows.until_lost()  # it is still listed, however long
        follows.members.addresses = ()
        await follows.until(lambda: not follows.followed.current().all or None)


async def test_who_has_the_view_already_is_told_so() -> None:
    peer = StubPeer(node="node-b")
    async with (
        stub_peers([peer]) as addresses,
        following(*addresses) as follows,
        running_agent(model("llm", port=7), cluster=follows.side) as agent,
    ):
        await follows.until_seen()

        async def ask(tag: str = "none") -> tuple[int, str]:
            answer = await agent.get("/api/cluster/servers", headers={"If-None-Match": tag})
            return answer.status, answer.headers["etag"]

        _, first = await ask()
        assert await ask(first) == (304, first)
        heard = follows.followed.latest(addresses[0])
        await follows.until(lambda: follows.followed.latest(addresses[0]) is not heard)
        assert await ask(first) == (304, first)
        follows.followed.heard(addresses[0], ModelName("llm"), ModelLoad(in_flight=1))
        status, busy = await ask(first)
        assert status == 200
        agent.board.set(model("llm"))
        status, changed = await ask(busy)
        assert (status, len({first, busy, changed})) == (200, 3)


async def test_a_view_that_is_overtaken_while_it_is_made_is_not_what_is_newest() -> None:
    known, other = Known(), peer(2, "node-c")
    known.peers = Peers(all=(peer(1), other))
    begun = asyncio.Event()

    def latest(address: Address) -> None:
        """The first look takes longer than anybody may hold the others up, and is old then."""
        if not begun.is_set():
            begun.set()
            known.peers = Peers(all=(peer(1, draining=True), other))
            end = time.monotonic() + 0.02
            while time.monotonic() < end:
                pass

    board, traffic = Board(status()), Traffic()
    loads = LocalLoads(traffic, Turns(queue_length=1, wait_seconds=1), UNTOLD)
    bulletin = Bulletin(board, loads, traffic, STEADY, agent_id="a", ending=asyncio.Event())
    servers = Servers(board, bulletin, replace(known.side(), latest=latest))

    async def ask(tag: str = "none") -> tuple[int, str]:
        heads: list[Message] = []

        async def send(message: Message) -> None:
            heads.append(message)

        async def receive() -> Message:
            raise AssertionError

        await servers({"headers": [(b"if-none-match", tag.encode())]}, receive, send)
        return heads[0]["status"], dict(heads[0]["headers"])[b"etag"].decode()

    (_, old), (_, new) = await asyncio.gather(ask(), ask())
    assert await ask(new) == (304, new)
    assert await ask(old) == (200, new)


async def test_the_metric_of_a_peer_ends_with_it() -> None:
    twins = [StubPeer(node="twin", agent_id=each) for each in "ab"]
    async with stub_peers(twins) as addresses, following(*addresses) as follows:
        await follows.until_all_seen(2)
        async with running_agent(cluster=follows.side) as agent:
            up = (await agent.get("/metrics")).body.decode()
            follows.members.addresses = ()
            await follows.until(lambda: not follows.followed.current().all or None)
            gone = (await agent.get("/metrics")).body.decode()
    assert up.count('xgen_peer_up{node="twin"} 1.0') == 1
    assert "xgen_peer_up{" not in gone


async def test_our_own_agent_is_no_peer() -> None:
    peer = StubPeer(agent_id="our-own-id")
    async with stub_peers([peer]) as addresses, following(*addresses) as follows:
        await follows.until(lambda: follows.members.strangers)
        assert follows.members.strangers == list(addresses)
        assert not follows.followed.current().all


async def test_an_agent_with_two_addresses_is_one_and_is_found_at_the_other() -> None:
    peer = StubPeer(node="node-b")
    async with following() as follows, stub_peers([peer]) as second:
        async with stub_peers([peer]) as first:
            follows.members.addresses = (*first, *second)
            await follows.until(lambda: follows.members.also)
            assert follows.one.reachable
            used = follows.one.address
        if used in first:
            await follows.until_one(lambda p: p.reachable and p.address in second)
        assert follows.one.address in second


@pytest.mark.parametrize("path", ["/cluster", "/api/cluster/servers"])
async def test_a_name_of_two_agents_leads_to_the_one_that_answers(path: str) -> None:
    """linkerd2#5209, and every pod that is replaced: the old one is known for a while."""
    old, new = StubPeer(node="node-b", agent_id="1"), StubPeer(node="node-b", agent_id="2")
    async with following() as follows:
        async with stub_peers([old]) as first:
            follows.members.addresses = first
            await follows.until_seen()
        await follows.until_lost()
        async with stub_peers([new]) as second:
            follows.members.addresses = (*first, *second)
            await follows.until_seen()
            named = follows.followed.current().named("node-b")
            async with running_agent(cluster=follows.side) as agent:
                view = (await agent.get(path)).json
    assert named is not None
    assert named.address in second
    assert [each["reachable"] for each in view["servers"] if each["node"] == "node-b"] in (
        [True, False],
        [False, True],
    )
