"""Who may change anything on a node, over the hop too: no way makes a stranger local."""

import pytest

from reconciler.proxy.access import asker, why_not_allowed
from reconciler.proxy.guard import Passage, marks
from reconciler.proxy.peers.peer import Peers
from tests.proxy.pair import TOKEN, pair, peer

TO_B = {"X-Target-Server": "node-b"}
RECONCILE = "/api/management/reconcile"
SUSPEND = "/api/management/suspend"
VOUCHED = Passage(by="node-a", trusted=True, proven=True, vouched=True)
PROVEN = Passage(by="node-a", trusted=True, proven=True)
TRUSTED = Passage(by="node-a", trusted=True)
CLAIMED = Passage(by="node-a")
DIRECT = Passage()


@pytest.mark.parametrize("client", [("127.0.0.1", 5), ("10.0.0.9", 5)])
@pytest.mark.parametrize(
    ("passage", "said"),
    [
        (PROVEN, "only clients on the host"),
        (TRUSTED, "--cluster-token-file"),
        (CLAIMED, "--cluster-token-file"),
    ],
)
def test_what_came_by_another_node_is_not_local(
    client: tuple[str, int], passage: Passage, said: str
) -> None:
    """An agent on this host may have passed it on for anybody."""
    scope = {"client": client, "headers": [], "state": {"passage": passage}}
    refusal = why_not_allowed(scope)
    assert refusal is not None
    assert (refusal.status, refusal.code) == (403, "not_on_this_host")
    assert said in refusal.message


@pytest.mark.parametrize("client", [("127.0.0.1", 5), ("10.0.0.9", 5)])
def test_what_another_agent_vouches_for_is_allowed(client: tuple[str, int]) -> None:
    scope = {"client": client, "headers": [], "state": {"passage": VOUCHED}}
    assert why_not_allowed(scope) is None
    assert asker(scope) == "a client on node node-a"


@pytest.mark.parametrize("name", [b"origin", b"forwarded", b"x-forwarded-for"])
def test_a_page_is_not_vouched_for(name: bytes) -> None:
    scope = {"client": ("10.0.0.9", 5), "headers": [(name, b"x")], "state": {"passage": VOUCHED}}
    assert why_not_allowed(scope) is not None


async def test_an_operator_on_one_node_may_change_another_with_a_token() -> None:
    async with pair(token=TOKEN) as nodes:
        answer = await nodes.a.chat({"retry": True}, RECONCILE, headers=TO_B)
        assert (answer.status, answer.json["node"]) == (200, "node-b")
        assert (await nodes.a.chat({}, SUSPEND, headers=TO_B)).status == 200
        assert nodes.b.operators.asked == [(True, None)]
        assert nodes.b.operators.orders.given[0][2] == "a client on node node-a"
        assert not nodes.a.operators.asked


async def test_without_a_token_nothing_is_changed_over_a_hop() -> None:
    """Both agents are on this host here, so the connection alone would be let through."""
    async with pair() as nodes:
        answer = await nodes.a.chat({}, RECONCILE, headers=TO_B)
        assert (answer.status, answer.error["code"]) == (403, "not_on_this_host")
        assert "--cluster-token-file" in answer.error["message"]
        assert not nodes.b.operators.asked
        assert (await nodes.a.get("/api/management/models", headers=TO_B)).status == 200


async def test_another_token_changes_nothing() -> None:
    async with pair(token=TOKEN, token_of_b="another") as nodes:
        assert (await nodes.a.chat({}, RECONCILE, headers=TO_B)).status == 403
        assert (await nodes.a.get("/api/cluster/_self", headers=TO_B)).json["node"] == "node-b"


async def test_a_token_that_only_the_other_has_changes_nothing() -> None:
    async with pair(token_of_b=TOKEN) as nodes:
        assert (await nodes.a.chat({}, RECONCILE, headers=TO_B)).status == 403
        assert not nodes.b.operators.asked


@pytest.mark.parametrize("name", ["Origin", "X-Forwarded-For", "Forwarded"])
async def test_a_page_changes_nothing_over_a_hop(name: str) -> None:
    async with pair(token=TOKEN) as nodes:
        for path in (f"{RECONCILE}?server=node-b", RECONCILE):
            headers = {name: "http://page"} | (TO_B if path == RECONCILE else {})
            assert (await nodes.a.chat({}, path, headers=headers)).status == 403
        assert not nodes.b.operators.asked


@pytest.mark.parametrize("token", [None, "guess"])
async def test_a_forged_vouch_is_worth_less_than_none(token: str | None) -> None:
    forged = {k.decode(): v.decode() for k, v in marks(node="x", token=token, on_host=True)}
    forged["X-Xgen-Client-On-Host"] = "1"
    async with pair(token=TOKEN) as nodes:
        assert (await nodes.b.chat({}, RECONCILE, headers=forged)).status == 403
        assert not nodes.b.operators.asked


async def test_a_second_hop_is_refused_with_who_made_the_first() -> None:
    """421: to go on to the right node might go round for ever."""
    ours = {k.decode(): v.decode() for k, v in marks(node="node-c", token=TOKEN)}
    async with pair(token=TOKEN) as nodes:
        answer = await nodes.a.get("/api/cluster/_self", headers={**ours, **TO_B})
        assert (answer.status, answer.error["code"]) == (421, "misdirected")
        for said in ("node-a", "node-b", "node-c"):
            assert said in answer.error["message"]
        here = await nodes.a.get("/api/cluster/_self", headers=ours)
        assert here.json["node"] == "node-a"
        forged = {"X-Cluster-Routed": "node-c", **TO_B}
        there = await nodes.a.get("/api/cluster/_self", headers=forged)
        assert there.json["node"] == "node-b"


async def test_an_agent_with_another_token_has_made_a_hop_all_the_same() -> None:
    other = {k.decode(): v.decode() for k, v in marks(node="node-c", token="old")}
    async with pair(token=TOKEN) as nodes:
        answer = await nodes.a.get("/api/cluster/_self", headers={**other, **TO_B})
        assert (answer.status, answer.error["code"]) == (421, "misdirected")


async def test_an_address_that_is_another_nodes_by_now_is_told() -> None:
    async with pair() as nodes:
        old = peer(nodes.b.port, "node-c", pod_name="pod-c", pod_ip="10.1.2.5")
        nodes.known.peers = Peers(all=(old,))
        answer = await nodes.a.get("/api/cluster/_self?server=node-c")
        assert (answer.status, answer.error["code"]) == (421, "misdirected")
        assert "this is node node-b" in answer.error["message"]
