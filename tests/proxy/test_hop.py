"""Requests that name another node: what gets there, and what comes back."""

import asyncio
import json
import socket
from collections.abc import Iterator

import pytest

from reconciler.plan.peering import Address
from reconciler.proxy.peers.peer import Peer, Peers
from tests.proxy.builders import model
from tests.proxy.pair import TOKEN, beside, pair, peer
from tests.proxy.stand_in import StandIn
from tests.proxy.test_feeds import sse, tell

TO_B = {"X-Target-Server": "node-b"}


@pytest.fixture
def taken() -> Iterator[socket.socket]:
    with socket.socket() as made:
        yield made


@pytest.mark.parametrize("name", ["node-b", "pod-b", "10.1.2.4", "127.0.0.1"])
async def test_a_node_is_known_by_each_of_its_names(llm: StandIn, name: str) -> None:
    async with pair(llm.as_model()) as nodes:
        by_header = await nodes.a.chat({"model": "llm"}, headers={"X-Target-Server": name})
        by_query = await nodes.a.chat({"model": "llm"}, f"/v1/chat/completions?server={name}")
        for answer in (by_header, by_query):
            assert answer.status == 200
            assert answer.headers["x-served-by"] == "node-b/llm"


async def test_a_peer_is_known_by_its_address_as_the_view_shows_it(llm: StandIn) -> None:
    async with pair(llm.as_model()) as nodes:
        for name in (f"127.0.0.1:{nodes.b.port}", f"[::ffff:127.0.0.1]:{nodes.b.port}"):
            answer = await nodes.a.get("/api/cluster/_self", headers={"X-Target-Server": name})
            assert (answer.status, answer.json["node"]) == (200, "node-b")
        other_port = {"X-Target-Server": f"127.0.0.1:{nodes.a.port}"}
        assert (await nodes.a.get("/api/cluster/_self", headers=other_port)).status == 404


def test_a_peer_that_was_never_seen_is_known_by_its_address() -> None:
    address = Address(host="fd00::1", port=8000)
    known = Peers(all=(Peer(address=address, document=b""),))
    assert known.names == ("[fd00::1]:8000",)
    for name in ("[fd00::1]:8000", "[FD00:0::1]:8000", "[fd00::1]", "fd00::1"):
        assert known.named(name) is known.all[0]
    assert known.named("[fd00::1]:8001") is None


@pytest.mark.parametrize("target", ["node-b", "pod-b"])
def test_of_two_with_one_name_the_newest_is_meant_that_can_be_reached(target: str) -> None:
    """As while a pod is replaced by one with another address, whichever of them sorts first."""
    early, late = "2026-12-01T12:00:00.500+00:00", "2026-12-01T12:00:03.000+00:00"
    for hosts in (("10.0.0.3", "10.0.0.103"), ("10.0.0.103", "10.0.0.3")):
        for old, new in ((False, True), (False, False), (True, True)):
            before = peer(1, host=hosts[0], reachable=old, since=early)
            after = peer(1, host=hosts[1], reachable=new, since=late)
            for every in ((before, after), (after, before)):
                assert Peers(all=every).named(target) is after
        lost = peer(1, host=hosts[1], reachable=False, since=late)
        reached = peer(1, host=hosts[0], since=early)
        assert Peers(all=(lost, reached)).named(target) is reached


async def test_the_header_counts_where_both_are_given(llm: StandIn) -> None:
    async with pair(llm.as_model()) as nodes:
        answer = await nodes.a.get("/api/cluster/_self?server=node-a", headers=TO_B)
        assert answer.json["node"] == "node-b"


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/metrics/backends"])
async def test_health_is_always_our_own(path: str) -> None:
    async with pair() as nodes:
        answer = await nodes.a.get(path, headers=TO_B)
        assert answer.headers["x-served-by"] == "node-a"


@pytest.mark.parametrize("path", ["/healthzfoo", "/readyz/foo", "/metricsfoo", "/metrics/foo"])
async def test_what_only_begins_like_it_is_answered_by_whoever_is_named(path: str) -> None:
    async with pair() as nodes:
        answer = await nodes.a.get(path, headers=TO_B)
        assert (answer.status, answer.headers["x-served-by"]) == (404, "node-b")


async def test_neither_name_reaches_the_backend(llm: StandIn) -> None:
    async with pair(llm.as_model(), token=TOKEN) as nodes:
        path = "/v1/chat/completions?server=node-b&x=%41"
        assert (await nodes.a.chat({"model": "llm"}, path, headers=TO_B)).status == 200
    assert await llm.last_target() == "/v1/chat/completions?x=%41"
    said = {name for name, _ in await llm.last_headers()}
    assert not {"x-target-server", "x-cluster-routed", "x-xgen-cluster-token"} & said


async def test_one_request_has_one_id_on_both_nodes(llm: StandIn) -> None:
    async with pair(llm.as_model()) as nodes:
        answer = await nodes.a.chat({"model": "llm"}, headers={**TO_B, "X-Request-Id": "r-1"})
        assert answer.headers.getall("x-request-id") == ["r-1"]
        made = await nodes.a.chat({"model": "llm"}, headers=TO_B)
    assert dict(await llm.last_headers())["x-request-id"] == made.headers["x-request-id"]


async def test_what_the_target_refuses_is_its_own_answer() -> None:
    async with pair(model("other")) as nodes:
        answer = await nodes.a.chat({"model": "llm"}, headers=TO_B)
        assert (answer.status, answer.error["code"]) == (404, "model_not_found")
        assert answer.headers["x-served-by"] == "node-b"
        assert not nodes.known.lost


async def test_an_unknown_node_is_404_and_all_are_listed() -> None:
    async with pair() as nodes:
        nodes.known.peers = Peers(all=(*nodes.known.peers.all, peer(7, None, host="10.9.9.9")))
        answer = await nodes.a.get("/v1/models?server=node-z")
        assert (answer.status, answer.error["code"]) == (404, "node_not_found")
        assert "node-a, node-b, 10.9.9.9:7" in answer.error["message"]


async def test_a_host_that_no_peer_has_is_never_called() -> None:
    called = []

    async def stranger(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        called.append(1)
        writer.close()

    async with await asyncio.start_server(stranger, "127.0.0.1", 0) as server, pair() as nodes:
        port = server.sockets[0].getsockname()[1]
        for name in (f"127.0.0.1:{port}", f"http://127.0.0.1:{port}", f"x@127.0.0.1:{port}"):
            answer = await nodes.a.get("/v1/models", headers={"X-Target-Server": name})
            assert answer.status == 404
    assert not called


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "POST", "DELETE"])
async def test_every_method_gets_there(method: str) -> None:
    async with pair(token=TOKEN) as nodes:
        here = await nodes.b.request(method, "/api/download/nothing")
        there = await nodes.a.request(method, "/api/download/nothing", headers=TO_B)
        assert (there.status, there.body) == (here.status, here.body)
        for name in ("content-length", "content-type", "allow", "x-served-by"):
            assert there.headers.getall(name, []) == here.headers.getall(name, []), name


async def test_a_peer_that_takes_no_connection_is_named_with_what_is_known_of_it(
    taken: socket.socket,
) -> None:
    async with pair() as nodes:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        port = taken.getsockname()[1]
        gone = peer(port, reachable=False, because="it refuses", since="2026-03-01T12:00:00Z")
        nodes.known.peers = Peers(all=(gone,))
        answer = await nodes.a.chat({"model": "llm"}, headers=TO_B)
        assert (answer.status, answer.error["code"]) == (503, "peer_unreachable")
        for said in ("node-b", f"127.0.0.1:{port}", "2026-03-01T12:00:00Z", "it refuses"):
            assert said in answer.error["message"]
        assert answer.headers["x-xgen-not-started"] == "1"
        assert [address.port for address, _ in nodes.known.lost] == [port]


async def test_what_the_view_has_as_unreachable_is_tried_all_the_same() -> None:
    async with pair() as nodes:
        nodes.known.peers = Peers(all=(peer(nodes.b.port, reachable=False, because="was"),))
        assert (await nodes.a.get("/v1/models", headers=TO_B)).status == 200


async def test_what_the_client_says_for_itself_gets_there() -> None:
    heads: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(
            b"HTTP/1.1 418 Short\r\nX-Served-By: node-b\r\nContent-Length: 2\r\nX-Own: 1\r\n"
            b"Connection: x-hop\r\nX-Hop: 1\r\nKeep-Alive: 5\r\nSet-Cookie: a=b\r\n"
            b"Set-Cookie: c=d\r\n\r\nok"
        )

    own = {
        "Authorization": "Bearer mine",
        "Cookie": "a=b",
        "Accept-Encoding": "br",
        "Origin": "http://page",
        "Connection": "keep-alive, x-dropped",
        "X-Dropped": "1",
        "Te": "trailers",
    }
    async with beside(answer, token=TOKEN) as (agent, _):
        got = await agent.get("/api/cluster/servers", headers={**own, **TO_B})
    assert (got.status, got.body) == (418, b"ok")
    assert got.headers.getall("set-cookie") == ["a=b", "c=d"]
    assert (got.headers["x-own"], "x-hop" in got.headers) == ("1", False)
    assert "keep-alive" not in got.headers
    head = heads[0].lower()
    for line in (
        b"authorization: bearer mine",
        b"cookie: a=b",
        b"accept-encoding: br",
        b"origin: http://page",
        b"x-cluster-routed: node-a",
        b"x-xgen-cluster-token: " + TOKEN.encode(),
        b"x-target-server: node-b",
    ):
        assert head.count(b"\r\n" + line + b"\r\n") == 1, line
    for name in (b"x-dropped", b"\r\nte:", b"keep-alive", b"x-xgen-client-on-host"):
        assert name not in head


@pytest.mark.parametrize("status", [204, 304])
async def test_answers_without_a_body_have_none(status: int) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status} X\r\nX-Served-By: b\r\nETag: e\r\n\r\n".encode())

    async with beside(answer) as (agent, _):
        got = await agent.get("/v1/models", headers=TO_B)
        again = await agent.get("/healthz")
    assert (got.status, got.body, got.headers["etag"]) == (status, b"", "e")
    assert again.status == 200


async def test_followed_events_come_as_they_happen() -> None:
    async with pair() as nodes:
        url = nodes.a.url("/api/management/events?follow=true")
        async with nodes.a.session.get(url, headers=TO_B) as response:
            for count in range(3):
                tell(nodes.b.operators, about=f"m{count}")
                event = json.loads((await sse(response))["data"])
                assert event["model"] == f"m{count}"
