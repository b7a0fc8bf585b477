"""What the cluster says of its choices: a page, and a header for one request."""

import json
import time
from dataclasses import replace

import pytest

from reconciler.plan.desired import Affinity
from reconciler.plan.ids import ModelName
from reconciler.plan.peering import Address
from reconciler.plan.phase import State
from reconciler.proxy import explain, route_table
from reconciler.proxy.balance import rank
from reconciler.proxy.peers.peer import Peers
from tests.proxy.agent import running_agent
from tests.proxy.builders import model, status
from tests.proxy.fleet import at, fleet, peer_model
from tests.proxy.pair import peer
from tests.proxy.ranking import of_explanation
from tests.proxy.stand_in import StandIn

PAGE = "/api/cluster/route?model=llm"


async def test_every_replica_is_there_with_its_figures_or_with_a_reason() -> None:
    serving, loading = model("llm", port=1, max_in_flight=4), model("llm", state=State.LOADING)
    async with fleet(a=(serving,), b=(serving,), c=(loading,)) as nodes:
        nodes.load("b", in_flight=3, waiting=1)
        page = (await nodes["a"].get(PAGE)).json
        assert (page["node"], page["model"], page["type"]) == ("node-a", "llm", "llm")
        assert (page["chosen"]["node"], page["chosen"]["waits"]) == ("node-a", False)
        first, second = page["candidates"]
        assert (first["node"], first["address"], first["has_slot"]) == ("node-a", None, True)
        assert (second["node"], second["in_flight"], second["waiting"]) == ("node-b", 3, 1)
        assert (second["slots"], second["has_slot"], second["admitted"]) == (4, False, True)
        assert page["not_eligible"] == [
            {"node": "node-c", "reachable": True, "reason": "it is loading: as told"}
        ]
        assert page["refusal"] is None


async def test_the_order_can_be_had_again_from_what_is_told() -> None:
    async with fleet(a=(model("llm", port=1),), b=(model("llm", port=1),)) as nodes:
        page = (await nodes["a"].get(PAGE)).json
        told = page["candidates"]
        again = rank(of_explanation(page), tie=page["tie"])
        assert [each.candidate.node for each in again] == [each["node"] for each in told]
        assert [list(each.score) for each in again] == [each["score"] for each in told]


def test_no_replica_is_compared_with_all_the_others() -> None:
    """Which of a thousand do not serve is said in passing, not half a second later."""

    class Alike(Address):
        def __eq__(self, other: object) -> bool:
            raise AssertionError

        __hash__ = Address.__hash__

    told = model("llm", port=1)
    known = [
        replace(
            peer(port, models={told.name: peer_model(told, serves=serves)}),
            address=Alike(host="10.0.0.1", port=port),
        )
        for port, serves in ((1, True), (2, False))
    ]
    table = route_table.build(status(), Peers(all=tuple(known)))
    assert table.by_name["llm"].serving
    assert explain.whole(table, table.by_name["llm"], None, None)["not_eligible"] == [
        {"node": "node-b", "reachable": True, "reason": "its process is just ending"}
    ]


async def test_an_alias_and_a_refusal() -> None:
    loading = model("llm", state=State.LOADING, aliases=("cheap",))
    async with fleet(a=(), b=(loading,)) as nodes:
        page = (await nodes["a"].get("/api/cluster/route?model=cheap")).json
        assert (page["model"], page["chosen"], page["candidates"]) == ("llm", None, [])
        assert page["refusal"]["code"] == "model_not_ready"


async def test_who_serves_what_is_disabled_here_is_told_too() -> None:
    """In the middle of a change: this node's own manifest counts for what comes here."""
    off, on = model("llm", state=State.DISABLED), model("llm", port=1)
    async with fleet(a=(off,), b=(on,)) as nodes:
        page = (await nodes["a"].get(PAGE)).json
        assert (page["chosen"], page["candidates"]) == (None, [])
        assert page["refusal"]["code"] == "model_disabled"
        assert page["not_eligible"] == [
            {"node": "node-a", "reachable": True, "reason": "it is disabled: as told"},
            {
                "node": "node-b",
                "reachable": True,
                "reason": "serves, and gets no request from here: model_disabled",
            },
        ]


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("?model=no", 404, "model_not_found"),
        ("", 400, "invalid_parameter"),
        ("?model=llm&model=no", 400, "invalid_parameter"),
        ("?model=llm&key=0123", 400, "invalid_parameter"),
        ("?model=llm&key=0123456789abcdeg", 400, "invalid_parameter"),
        ("?model=llm&key=0123456789abcdef&session=s", 400, "invalid_parameter"),
        ("?model=llm&key=0123456789abcdef&model=llm", 200, None),
    ],
)
async def test_what_can_be_asked(query: str, status: int, code: str | None) -> None:
    async with running_agent(model("llm", port=1)) as agent:
        answer = await agent.get(f"/api/cluster/route{query}")
        assert answer.status == status
        assert answer.json.get("error", {}).get("code") == code


async def test_a_node_without_peers_explains_itself_too() -> None:
    async with running_agent(model("llm", port=1)) as agent:
        page = (await agent.get(PAGE)).json
        assert [each["node"] for each in page["candidates"]] == ["node-a"]


async def test_a_request_explains_its_own_choice(llm: StandIn) -> None:
    async with fleet(a=(), b=(llm.as_model(),)) as nodes:
        answer = await nodes["a"].chat({"model": "llm"}, headers={"X-Xgen-Debug": "route"})
        told = json.loads(answer.headers["x-xgen-route"])
        assert (told["node"], told["model"]) == ("node-b", "llm")
        assert told["candidates"][0]["slots"] is None
        assert "x-xgen-route" not in (await nodes["a"].chat({"model": "llm"})).headers
        assert "x-xgen-debug" not in dict(await llm.last_headers())


async def test_a_session_stays_with_its_replica(llm: StandIn) -> None:
    told = llm.as_model(affinity=Affinity.SESSION)
    async with fleet(a=(), b=(told,), c=(told,), d=(told,)) as nodes:
        for session in ("s-1", "s-2", "s-3", "s-4"):
            page = (await nodes["a"].get(f"{PAGE}&session={session}")).json
            for _ in range(4):
                answer = await nodes["a"].chat({"model": "llm"}, headers={"X-Session-Id": session})
                assert answer.headers["x-served-by"] == f"{page['chosen']['node']}/llm"


async def test_the_key_of_a_request_leads_to_where_it_went(llm: StandIn) -> None:
    """A prompt is no parameter: its digest is, as the answer has said it."""
    told = llm.as_model(affinity=Affinity.PREFIX)
    async with fleet(a=(), b=(told,), c=(told,), d=(told,)) as nodes:
        went: set[str] = set()
        for number in range(12):
            asked = {"model": "llm", "messages": [{"role": "user", "content": f"{number}"}]}
            answer = await nodes["a"].chat(asked, headers={"X-Xgen-Debug": "route"})
            route = json.loads(answer.headers["x-xgen-route"])
            page = (await nodes["a"].get(f"{PAGE}&key={route['key']}")).json
            assert (page["affinity"], page["key"]) == ("prefix", route["key"])
            assert page["chosen"]["node"] == route["node"]
            went.add(route["node"])
        assert len(went) > 1


async def test_a_key_says_nothing_where_the_model_has_no_affinity() -> None:
    async with fleet(a=(model("llm", port=1),), b=(model("llm", port=1),)) as nodes:
        page = (await nodes["a"].get(f"{PAGE}&key=0123456789abcdef")).json
        assert (page["affinity"], page["key"]) == ("none", None)


async def test_how_slow_a_replica_was_is_forgotten_while_its_node_cannot_be_reached() -> None:
    """It is asked anew once it is back; as long as it hangs there, its slowness stays known."""

    async def first_byte() -> float | None:
        page = (await nodes["a"].get(PAGE)).json
        (shown,) = (each for each in page["candidates"] if each["node"] == "node-b")
        seconds: float | None = shown["first_byte_seconds"]
        return seconds

    async with fleet(a=(model("llm", port=1),), b=(model("llm", port=1),)) as nodes:
        address, took = at(nodes["b"]), nodes["a"].visits.first_bytes
        now = time.monotonic()
        waiting = took.began((address, ModelName("llm")), now - 9, streams=True)
        took.came((address, ModelName("llm")), waiting, now, streams=True)
        assert await first_byte() == pytest.approx(9)
        lost = nodes.mates["node-a"].lost
        lost[address] = "no answer within 6 s"
        assert [each["node"] for each in (await nodes["a"].get(PAGE)).json["candidates"]] == [
            "node-a"
        ]
        del lost[address]
        assert await first_byte() is None
