"""A request finds its model on whatever node it is, through any node."""

from dataclasses import replace

import pytest

from reconciler.plan.desired import Elsewhere
from reconciler.plan.ids import ModelName, NodeName
from reconciler.plan.phase import State
from reconciler.proxy.peers.load import ModelLoad
from reconciler.status import Revision
from tests.proxy.agent import Agent
from tests.proxy.builders import KEY, model
from tests.proxy.fleet import at, fleet, until
from tests.proxy.raw_engine import saying
from tests.proxy.stand_in import StandIn, StartStandIn

PATHS = ("/v1/chat/completions", "/api/inference/v1/chat/completions")


@pytest.mark.parametrize("path", PATHS)
async def test_a_model_that_only_a_peer_has_answers_through_any_node(
    llm: StandIn, path: str
) -> None:
    async with fleet(a=(), b=(llm.as_model(),), c=()) as nodes:
        for name in ("a", "b", "c"):
            answer = await nodes[name].chat({"model": "llm"}, path)
            assert (answer.status, answer.headers["x-served-by"]) == (200, "node-b/llm")
            assert "x-xgen-load" not in answer.headers
            assert "x-retried" not in answer.headers
        assert nodes.under_way == 0


async def test_an_answer_passes_byte_for_byte() -> None:
    said = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Mine: 1\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n9\r\ndata: \xc3\xa4\n\r\n1\r\n\n\r\n0\r\n\r\n"
    )
    async with saying(said) as (told, _), fleet(a=(), b=(told,)) as nodes:
        answer = await nodes["a"].chat({"model": "llm", "stream": True})
        assert (answer.status, answer.body) == (200, b"data: \xc3\xa4\n\n")
        assert (answer.headers["x-mine"], answer.headers["x-accel-buffering"]) == ("1", "no")
        assert answer.headers.getall("x-served-by") == ["node-b/llm"]
        assert len(answer.headers.getall("x-request-id")) == 1


async def test_the_request_reaches_the_engine_as_without_a_hop(llm: StandIn) -> None:
    raw = b'{"x": [1,  2], "model":"cheap" , "y": "\xc3\xa4"}'
    async with fleet(a=(), b=(llm.as_model(aliases=("cheap",)),), token="t") as nodes:
        await nodes["a"].chat(raw, headers={"X-Request-Id": "r-1", "X-Mine": "1"})
    said = dict(await llm.last_headers())
    assert await llm.last_body() == b'{"x": [1,  2], "model":"llm" , "y": "\xc3\xa4"}'
    assert said["authorization"] == f"Bearer {KEY}"
    assert (said["x-request-id"], said["x-mine"]) == ("r-1", "1")
    assert not {"x-cluster-routed", "x-xgen-cluster-token"} & said.keys()


@pytest.mark.parametrize("query", ["", "?model=llm", "?a=1&model=llm&b=%20"])
async def test_the_peer_means_the_same_model_where_the_body_says_none(
    llm: StandIn, query: str
) -> None:
    async with fleet(a=(), b=(llm.as_model(),)) as nodes:
        answer = await nodes["a"].chat({}, f"/v1/chat/completions{query}")
        assert answer.headers["x-served-by"] == "node-b/llm"
    assert "model" not in await llm.last_target()


async def test_the_model_list_is_that_of_the_cluster() -> None:
    loading = model("slow", state=State.LOADING, aliases=("s",))
    async with fleet(a=(model("here", port=1),), b=(model("slow", port=2), loading)) as nodes:
        nodes["b"].board.set(loading)
        listed = (await nodes["a"].get("/v1/models")).json["data"]
        assert [(e["id"], e["root"], e["ready"]) for e in listed] == [
            ("here", "here", True),
            ("s", "slow", False),
            ("slow", "slow", False),
        ]
        one = (await nodes["a"].get("/v1/models/slow")).json
        assert (one["state"], one["ready"]) == ("loading", False)
        pinned = await nodes["a"].get("/v1/models", headers={"X-Target-Server": "node-a"})
        assert [each["id"] for each in pinned.json["data"]] == ["here"]


async def test_an_unknown_model_is_404_with_all_of_the_cluster() -> None:
    async with fleet(a=(model("here", port=1),), b=(model("there", port=2),)) as nodes:
        answer = await nodes["a"].chat({"model": "no"})
        assert (answer.status, answer.error["code"]) == (404, "model_not_found")
        assert "the cluster knows here, there" in answer.error["message"]


async def test_who_names_this_node_gets_its_own_answer(llm: StandIn) -> None:
    async with fleet(a=(), b=(llm.as_model(),)) as nodes:
        answer = await nodes["a"].chat({"model": "llm"}, headers={"X-Target-Server": "node-a"})
        assert (answer.status, answer.error["code"]) == (404, "model_not_found")


async def test_nobody_passes_a_request_on_a_second_time() -> None:
    """Each has heard of the other's model, and neither has it any more."""
    gone = model("llm", port=9)
    async with fleet(a=(gone,), b=(gone,)) as nodes:
        for mates in nodes.mates.values():
            mates.freeze()
        nodes["a"].board.set()
        nodes["b"].board.set()
        answer = await nodes["a"].chat({"model": "llm"})
        assert (answer.status, answer.headers["x-served-by"]) == (503, "node-b/llm")
        assert answer.error["code"] == "model_not_ready"
        assert nodes.under_way == 0


async def test_an_alias_that_one_node_has_read_answers_through_all(llm: StandIn) -> None:
    """One that serves the model does not know it, one does, and one has no such model."""
    plain, chat = llm.as_model(), {"model": "new"}
    async with fleet(a=(plain,), b=(), c=(llm.as_model(aliases=("new",)),)) as nodes:
        for asked in "abc":
            assert (await nodes[asked].chat(chat)).status == 200
            page = (await nodes[asked].get("/api/cluster/route?model=new")).json
            serving = {each["node"] for each in page["candidates"]}
            assert (page["model"], serving) == ("llm", {"node-a", "node-c"})
            entry = (await nodes[asked].get("/v1/models/new")).json
            assert (entry["root"], entry["ready"]) == ("llm", True)
        nodes.mates["node-b"].agents.remove(nodes["c"])
        nodes["b"].board.put(
            replace(
                nodes["b"].board.now,
                elsewhere=(Elsewhere(name=ModelName("llm"), reason="why", aliases=("new",)),),
            )
        )
        answer = await nodes["b"].chat(chat)
        assert (answer.status, answer.headers["x-served-by"]) == (200, "node-a/llm")


async def test_a_name_on_its_way_from_node_to_node_is_not_unknown(llm: StandIn) -> None:
    """The node that loses it has read the new manifest, the one that gets it has not: clients never
    repeat a 404."""
    chat = {"model": "cheap"}
    async with fleet(a=(model("one", port=9, aliases=("cheap",)),), b=(), c=()) as nodes:
        for asked in "abc":
            await nodes[asked].get("/v1/models")
        nodes["a"].board.set(model("one", port=9))
        for asked in "abc":
            answer = await nodes[asked].chat(chat)
            assert (answer.status, answer.error["code"]) == (503, "model_not_ready")
            assert answer.headers["retry-after"] == "5"
            assert "which meant one, has just gone" in answer.error["message"]
            assert (await nodes[asked].get("/v1/models/cheap")).status == 503
            assert (await nodes[asked].chat({"model": "never"})).status == 404
        nodes["b"].board.set(llm.as_model(aliases=("cheap",)))
        for asked in "abc":
            answer = await nodes[asked].chat(chat)
            assert (answer.status, answer.headers["x-served-by"]) == (200, "node-b/llm")


async def test_the_only_model_of_a_type_on_its_way_is_waited_for(llm: StandIn) -> None:
    async with fleet(a=(model("one", port=9),), b=(), c=()) as nodes:
        for each in nodes.nodes.values():
            each.board.put(replace(each.board.now, revision=Revision(applied="r")))
        for asked in "abc":
            await nodes[asked].get("/v1/models")
        nodes["a"].board.put(replace(nodes["a"].board.now, models=()))
        for asked in "abc":
            answer = await nodes[asked].chat({})
            assert (answer.status, answer.error["code"]) == (503, "no_model_of_type")
            assert answer.headers["retry-after"] == "5"
            assert "one has just gone" in answer.error["message"]
            other = await nodes[asked].request("POST", "/v1/embeddings", body={"input": "x"})
            assert other.headers["x-should-retry"] == "false"
        nodes["b"].board.set(llm.as_model("one"))
        for asked in "abc":
            assert (await nodes[asked].chat({})).status == 200


async def test_without_peers_a_name_that_has_gone_is_unknown_at_once() -> None:
    async with fleet(a=(model("here", port=1),)) as nodes:
        await nodes["a"].get("/v1/models")
        nodes["a"].board.set()
        assert (await nodes["a"].chat({"model": "here"})).status == 404


def _drain(agent: Agent) -> None:
    agent.board.put(replace(agent.board.now, draining=True))


async def test_a_draining_node_passes_new_work_to_its_peers(llm: StandIn) -> None:
    async with fleet(a=(llm.as_model(),), b=(llm.as_model(),)) as nodes:
        _drain(nodes["a"])
        answer = await nodes["a"].chat({"model": "llm"})
        assert (answer.status, answer.headers["x-served-by"]) == (200, "node-b/llm")


async def test_a_draining_node_sends_its_clients_to_another_connection(llm: StandIn) -> None:
    """Load balancers of connections do not move those that are kept."""
    async with fleet(a=(llm.as_model(),), b=(llm.as_model(),)) as nodes:
        assert "connection" not in (await nodes["a"].chat({"model": "llm"})).headers
        _drain(nodes["a"])
        assert (await nodes["a"].chat({"model": "llm"})).headers["connection"] == "close"
        assert (await nodes["a"].get("/v1/models")).headers["connection"] == "close"


async def test_a_node_near_its_end_passes_on_nothing_new_and_closes(llm: StandIn) -> None:
    async with fleet(a=(llm.as_model(),), b=(llm.as_model(),)) as nodes:
        nodes["a"].board.put(replace(nodes["a"].board.now, draining=True, closed=True))
        answer = await nodes["a"].chat({"model": "llm"})
        assert (answer.status, answer.error["code"]) == (503, "node_draining")
        assert answer.headers["x-xgen-not-started"] == "1"
        assert int(answer.headers["retry-after"]) > 0
        assert answer.headers["connection"] == "close"
        assert nodes.under_way == 0


async def test_a_draining_node_tells_peers_that_it_has_not_begun(llm: StandIn) -> None:
    async with fleet(a=(), b=(llm.as_model(),)) as nodes:
        nodes.mates["node-a"].freeze()
        _drain(nodes["b"])
        answer = await nodes["a"].chat({"model": "llm"})
        assert (answer.status, answer.error["code"]) == (503, "node_draining")
        assert answer.headers["x-xgen-not-started"] == "1"
        assert answer.headers["x-served-by"] == "node-b"


async def test_a_node_that_does_not_know_its_models_yet_uses_its_peers(llm: StandIn) -> None:
    async with fleet(a=(), b=(llm.as_model(),)) as nodes:
        starting = replace(nodes["a"].board.now, unknown_because="has just started")
        nodes["a"].board.put(starting)
        assert (await nodes["a"].chat({"model": "llm"})).status == 200
        assert (await nodes["a"].get("/v1/models")).json["data"][0]["id"] == "llm"
        assert (await nodes["a"].chat({"model": "no"})).error["code"] == "node_starting"


async def test_a_peer_that_has_the_model_no_more_is_passed_over(llm: StandIn) -> None:
    async with fleet(a=(), b=(llm.as_model(),), c=(llm.as_model(),)) as nodes:
        nodes.mates["node-a"].freeze()
        nodes.load("c", in_flight=5)
        nodes["b"].board.set()
        answer = await nodes["a"].chat({"model": "llm"})
        assert (answer.status, answer.headers["x-served-by"]) == (200, "node-c/llm")
        assert answer.headers["x-retried"] == "1"


async def test_an_address_that_is_another_nodes_by_now_is_passed_over(llm: StandIn) -> None:
    async with fleet(a=(), b=(llm.as_model(),), c=(llm.as_model(),)) as nodes:
        nodes.mates["node-a"].freeze()
        nodes.load("c", in_flight=5)
        nodes["b"].board.put(replace(nodes["b"].board.now, node=NodeName("node-x")))
        answer = await nodes["a"].chat({"model": "llm"})
        assert (answer.status, answer.headers["x-served-by"]) == (200, "node-c/llm")


async def test_a_long_prefill_elsewhere_has_heartbeats_too(stand_in: StartStandIn) -> None:
    """litellm#34819, #34374: no byte came during a long prefill (scenario 45)."""
    hangs = stand_in("--hang")
    settings = {"heartbeat_seconds": 0.05}
    async with fleet(a=(), b=(hangs.as_model(),), settings=settings) as nodes:
        reader, writer = await nodes["a"].send_raw({"model": "llm", "stream": True})
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"200 OK" in head
        assert b"x-served-by: node-b/llm" in head
        await reader.readuntil(b": ping\n\n")
        writer.close()
        await hangs.until_running(0)
        await until(lambda: nodes.under_way == 0)


async def test_how_busy_a_replica_is_comes_with_its_answers_to_agents(llm: StandIn) -> None:
    async with fleet(a=(), b=(llm.as_model(),)) as nodes:
        assert (await nodes["a"].chat({"model": "llm"})).status == 200
        told = nodes.mates["node-a"].told
        assert told == {(at(nodes["b"]), "llm"): ModelLoad(in_flight=1)}
        direct = await nodes["b"].chat({"model": "llm"}, headers={"X-Target-Server": "node-b"})
        assert "x-xgen-load" not in direct.headers
