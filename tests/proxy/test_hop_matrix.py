"""Clients of every kind over a hop: nothing changes for them, and nothing is smuggled to the peer.

The same cases as without a hop, each sent whole, cut in and behind the ends of its lines, and byte
by byte; what goes over is judged by h11, too.
"""

from collections.abc import Mapping
from dataclasses import replace

from reconciler.proxy.peers.peer import Peers
from tests.proxy.agent import CHAT
from tests.proxy.judge import converse
from tests.proxy.judged_engine import judged_engine
from tests.proxy.matrix import Case, hold, length
from tests.proxy.pair import TOKEN, pair, peer
from tests.proxy.stand_in import StandIn
from tests.proxy.test_client_matrix import FRAMINGS, HEADS, PIPELINES
from tests.proxy.test_smuggling import NONSENSE, SMUGGLING

_HOST = b"Host: a\r\n"
_TO_B = b"X-Target-Server: node-b\r\n"


def over(cases: Mapping[str, Case]) -> Mapping[str, Case]:
    return {
        name: replace(case, sent=case.sent.replace(_HOST, _HOST + _TO_B))
        for name, case in cases.items()
    }


async def test_however_a_body_is_framed_it_is_one_request(llm: StandIn) -> None:
    async with pair(llm.as_model(), body_bytes=4000) as nodes:
        await hold(nodes.a, llm, over(FRAMINGS))


async def test_heads_of_every_kind(llm: StandIn) -> None:
    all_of_it = {"OPTIONS of all": Case(HEADS["OPTIONS of all"].sent, [("OPTIONS", 400)])}
    async with pair(llm.as_model()) as nodes:
        await hold(nodes.a, llm, over({**HEADS, **all_of_it}))


async def test_pipelined_requests_are_answered_each(llm: StandIn) -> None:
    async with pair(llm.as_model()) as nodes:
        await hold(nodes.a, llm, over(PIPELINES))


async def test_nonsense_is_refused_and_the_connection_ends(llm: StandIn) -> None:
    async with pair(llm.as_model()) as nodes:
        await hold(nodes.a, llm, over(NONSENSE))


async def test_nothing_is_smuggled(llm: StandIn) -> None:
    async with pair(llm.as_model()) as nodes:
        await hold(nodes.a, llm, over(SMUGGLING))


async def test_what_goes_out_has_one_framing() -> None:
    """The judge is the peer itself; what it says is no agent's answer, and of no interest here."""
    cases = [case for case in over({**FRAMINGS, **HEADS}).values() if case.reach]
    async with judged_engine() as engine, pair(token=TOKEN) as nodes:
        nodes.known.peers = Peers(all=(peer(engine.port),))
        for case in cases:
            await converse(nodes.a, [case.all_bytes], case.methods)
        assert engine.faults == []
        assert [asked.body for asked in engine.asked] == [b for case in cases for b in case.reach]
        assert {len(asked.framings) for asked in engine.asked} == {1}
        for asked in engine.asked:
            names = [name for name, _ in asked.headers]
            assert (asked.method, asked.target) == ("POST", CHAT)
            assert len(names) == len(set(names))
            assert {b"x-cluster-routed", b"x-xgen-cluster-token", b"x-target-server"} < set(names)


_ASK = b'{"model":"llm"}'
_HOSTILE = {
    "names our headers": b"Connection: x-cluster-routed, x-xgen-cluster-token, x-target-server",
    "names its length": b"Connection: content-length, transfer-encoding, host",
    "says a mark": b"X-Cluster-Routed: node-z",
    "vouches for itself": b"X-Xgen-Client-On-Host: 1",
    "names two nodes": b"X-Target-Server: node-b",
    "a path in the name": b"X-Served-By: node-z",
}


async def test_no_header_of_a_client_takes_ours_away() -> None:
    async with judged_engine() as engine, pair(engine.as_model(), token=TOKEN) as nodes:
        for name, line in _HOSTILE.items():
            for answer in await converse(
                nodes.a,
                [length(_ASK, _TO_B.strip(), line, b"Connection: close")],
                ["POST"],
            ):
                assert answer.status == 200, name
                assert answer.headers[b"x-served-by"] == b"node-b/llm", name
        assert engine.faults == []
        assert {(asked.target, asked.body) for asked in engine.asked} == {(CHAT, _ASK)}


async def test_a_path_stays_as_it_was_sent(llm: StandIn) -> None:
    paths = {
        "/v1/models/a%2Fb%0d%0aX:1": 404,
        "//node-z:1/v1/models": 404,
        "/v1/models/..%2f..%2fhealthz": 404,
        "/@node-z:1/": 404,
        "/v1/%6dodels": 200,
        "/v1/models?a=%0d%0a&server=node-b&b=%26": 200,
    }
    async with pair(llm.as_model()) as nodes:
        for path, status in paths.items():
            sent = f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n".encode()
            [answer] = await converse(nodes.a, [sent + _TO_B + b"\r\n"], ["GET"])
            assert answer.status == status, path
            assert answer.headers[b"x-served-by"] == b"node-b", path
