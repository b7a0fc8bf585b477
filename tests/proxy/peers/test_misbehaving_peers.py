"""What may answer at a peer's address, and what is said of it then: quickly, and in words."""

import asyncio
import json

import pytest

from reconciler.plan.peering import Address
from tests.ports import own_ports
from tests.proxy.agent import running_agent
from tests.proxy.peers.members import following
from tests.proxy.peers.raw_peer import (
    Behave,
    answer,
    as_json,
    hangs,
    never_ends,
    raw_peer,
    resets,
    says,
    trickles,
)

_LIMIT = 0.3
_WHOLE = b'{"node": "x"}'
_PROBLEM = json.dumps({"error": {"code": "cluster_token_refused"}}).encode()

_CASES: list[tuple[str, Behave, str]] = [
    ("hangs", hangs, "has not answered within 0.3 s"),
    ("resets", resets, "reset the connection"),
    ("says nothing", says(b""), "ended the connection before its answer was complete"),
    ("half a head", says(b"HTTP/1.1 200 O"), "ended the connection before"),
    ("half a body", says(answer(_WHOLE)[:-3]), "ended the connection before"),
    ("trickles", trickles, "has not answered"),
    ("never ends", never_ends, "answers with more than 16 MiB"),
    ("garbage", says(b"\x00\xffSSH-2.0-OpenSSH\r\n"), "its answer is not HTTP"),
    ("no JSON", says(answer(b"<html>")), "its answer is not JSON"),
    ("bad UTF-8", says(answer(b'{"node": "\xff"}')), "its answer is not JSON"),
    ("very deep", says(answer(b"[" * 100_000)), "its answer is not JSON"),
    ("a list", says(answer(b"[]")), "its answer is not an object"),
    ("no node", says(as_json(status="ok")), "its answer names no node"),
    ("a node without a name", says(as_json(node="")), "its answer names no node"),
    ("another API", says(as_json(api=2, node="x")), "speaks another API"),
    ("half of two answers", says(as_json(unchanged=True)), "leaves out what it is"),
    ("500", says(answer(b"", status="500 Oops")), "it answers 500"),
    ("404", says(answer(b"", status="404 No")), "it answers 404"),
    ("elsewhere", says(answer(b"", status="302 Go", location="http://[::1]:1/")), "it answers 302"),
    ("compressed", says(answer(b"\x1f\x8b", content_encoding="gzip")), "its answer is not JSON"),
    ("token", says(answer(_PROBLEM, status="403 No")), "wants a cluster token"),
]


@pytest.mark.parametrize(
    ("behave", "because"), [case[1:] for case in _CASES], ids=[c[0] for c in _CASES]
)
async def test_what_is_no_good_answer_is_told_from_others(behave: Behave, because: str) -> None:
    async with raw_peer(behave) as address, following(address, answer_seconds=_LIMIT) as follows:
        peer = await follows.until_lost()
        assert because in (peer.because or "")
        assert (peer.node, peer.document) == (None, b"")


async def test_who_refuses_to_tell_is_told_from_who_is_not_there() -> None:
    nobody = Address(host="127.0.0.1", port=own_ports()[-1])
    async with following(nobody) as follows:
        assert not (await follows.until_lost()).refuses
    refuses = says(answer(_PROBLEM, status="403 No"))
    async with raw_peer(refuses) as address, following(address) as follows:
        assert (await follows.until_lost()).refuses


async def test_a_refused_connection_is_told() -> None:
    nobody = Address(host="127.0.0.1", port=own_ports()[-1])
    async with following(nobody) as follows:
        assert (await follows.until_lost()).because == "refuses connections"


async def test_a_name_that_leads_nowhere_is_told() -> None:
    async with following(Address(host="nowhere.invalid", port=1)) as follows:
        assert "has a name that leads nowhere" in ((await follows.until_lost()).because or "")


async def test_a_dead_peer_holds_no_view_up() -> None:
    """xinference#1973: one node that was down broke the others' list."""
    async with (
        raw_peer(hangs) as silent,
        following(silent) as follows,
        running_agent(cluster=follows.side) as agent,
    ):
        view = (await agent.get("/api/cluster/servers")).json
    assert view["count"] == 2
    (lost,) = [server for server in view["servers"] if not server["reachable"]]
    assert (lost["node"], lost["loaded_models"]) == ("unknown", [])
    assert lost["reason"] == "has not been asked yet"


async def test_recovery_is_automatic() -> None:
    """dynamo#3493: a blip, and no recovery."""
    good = True

    async def behave(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(as_json(node="x") if good else answer(b"", status="500 Oops"))

    async with raw_peer(behave) as address, following(address) as follows:
        await follows.until_seen()
        good = False
        follows.followed.failed(address, "routing met a reset")
        assert follows.one.because == "routing met a reset"
        lost = await follows.until_one(lambda peer: "500" in (peer.because or ""))
        assert lost.node == "x"
        good = True
        assert (await follows.until_seen()).because is None
