"""One agent follows another, both on real sockets."""

import asyncio
import socket
from dataclasses import replace
from functools import partial

from reconciler.plan.ids import ModelName, NodeName
from reconciler.proxy.peers.peer import Unheard
from tests.proxy.agent import Agent, running_agent
from tests.proxy.builders import model
from tests.proxy.peers.members import following, local
from tests.proxy.peers.raw_peer import as_json, hangs, raw_peer
from tests.proxy.peers.stub_peer import StubPeer, model_entry, stub_peers


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


async def test_an_agent_of_an_older_release_is_followed_and_not_asked_all_the_time() -> None:
    """It answers at once, whatever it is asked to wait for."""
    old = StubPeer(node="node-b", old=True)
    old.serve(model_entry("llm"))
    new = StubPeer(node="node-c", agent_id="c")
    async with stub_peers([old, new]) as addresses, following(*addresses) as follows:
        await follows.until_all_seen(2)
        for _ in range(3):  # of the other one, to which nothing is new
            asked = len(new.asked)
            await follows.until(partial(_more, new, asked))
        assert len(old.asked) <= 2
        assert {peer.node for peer in follows.followed.current().all if peer.models} == {"node-b"}


def _more(peer: StubPeer, than: int) -> bool:
    return len(peer.asked) > than


async def test_a_peer_that_is_asked_waits_until_it_has_news() -> None:
    peer = StubPeer()
    async with stub_peers([peer]) as addresses, following(*addresses) as follows:
        await follows.until(lambda: len(peer.asked) >= 2)
        peer.serve(model_entry("llm"))
        await follows.until_one(lambda peer: bool(peer.models))
    first, second = peer.asked[:2]
    assert (first["after"], first["wait"]) == ("-1", "0")
    assert (second["after"], second["agent"]) == ("0", "stub-id")
    assert float(second["wait"]) > 0


async def test_a_restarted_agent_is_the_same_peer_and_told_anew() -> None:
    peer = StubPeer()
    peer.serve(model_entry("llm"))
    async with stub_peers([peer]) as addresses, following(*addresses) as follows:
        since = (await follows.until_seen()).models[ModelName("llm")].serves_since
        peer.agent_id = "another"
        peer.change()
        again = await follows.until_one(lambda peer: peer.agent_id == "another")
    assert since is None
    assert again.models[ModelName("llm")].serves_since is None
    assert again.address in addresses


async def test_what_routing_meets_counts_at_once_and_a_probe_takes_it_back() -> None:
    peer = StubPeer()
    async with stub_peers([peer]) as addresses, following(*addresses) as follows:
        await follows.until_seen()
        await follows.until(lambda: len(peer.asked) >= 2)
        for _ in range(100):
            follows.followed.failed(addresses[0], "reset the connection")
            assert (follows.one.reachable, follows.one.because) == (False, "reset the connection")
        await follows.until_seen()
        assert len(peer.asked) <= 4


async def test_a_connection_that_ended_meanwhile_is_no_failure() -> None:
    """linkerd2#5209: stale connections after a rollout."""
    peer = StubPeer(hangs_up=True)
    async with stub_peers([peer]) as addresses, following(*addresses) as follows:
        since = (await follows.until_seen()).since
        for _ in range(3):
            asked = len(peer.asked)
            peer.change()
            await follows.until(partial(_more, peer, asked))
        seen = await follows.until_seen()
    assert seen.since == since


async def test_one_that_answered_and_now_hangs_is_lost() -> None:
    asked = 0

    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            await hangs(reader, writer)
        writer.write(as_json(node="node-b", agent_id="b", version=1))

    async with raw_peer(once) as address, following(address, answer_seconds=0.3) as follows:
        await follows.until_seen()
        lost = await follows.until_lost()
    assert (lost.node, lost.because) == ("node-b", "has not answered within 2.3 s")


async def test_clocks_that_differ_do_not_matter() -> None:
    peer = StubPeer(fields={"now": "1999-01-01T00:00:00Z", "as_of": "2099-01-01T00:00:00Z"})
    async with stub_peers([peer]) as addresses, following(*addresses) as follows:
        seen = await follows.until_seen()
        latest = follows.followed.latest(addresses[0])
    assert seen.since is not None
    assert seen.since.startswith("at ")
    assert latest is not None


async def test_two_hundred_and_one_agents_are_asked_in_turn_on_few_connections() -> None:
    peers = [StubPeer(node=f"n{each}", agent_id=f"{each}") for each in range(201)]
    async with stub_peers(peers) as addresses, following(*addresses) as follows:
        await follows.until_all_seen(201)
        await follows.until(lambda: not any(peer.open_connections for peer in peers))
    assert all(peer.asked[-1]["wait"] == "0" for peer in peers)


async def test_a_large_status_is_read_beside_everything_else() -> None:
    peer = StubPeer()
    peer.serve(*(model_entry(f"model-{each}", note="x" * 500) for each in range(1000)))
    async with stub_peers([peer]) as addresses, following(*addresses) as follows:
        assert len((await follows.until_seen()).models) == 1000


async def test_what_is_not_known_yet_is_told_until_it_is() -> None:
    """One that refuses connections, and a name that leads nowhere."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        nobody = local(bound.getsockname()[1])
        name = Unheard(cause="cannot look up agents: why", since="2026-01-01T00:00:00Z")
        unseen = f"{nobody} refuses connections"
        async with running_agent() as other, following(local(other.port), nobody) as follows:
            follows.members.unfound = (name,)

            def causes() -> set[str]:
                return {each.cause for each in follows.followed.current().unheard}

            await follows.until(lambda: causes() == {name.cause, unseen})
            follows.members.unfound = ()
            await follows.until(lambda: causes() == {unseen})
