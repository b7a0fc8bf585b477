"""Agents on real sockets: who answers follows keys and figures, and the answer says why."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from reconciler.plan.desired import Affinity
from reconciler.proxy.balance import admitted, rank
from reconciler.status import Device, ModelStatus
from tests.proxy.builders import model
from tests.proxy.fleet import Fleet, fleet
from tests.proxy.ranking import names, of_explanation
from tests.proxy.stand_in import StandIn

NODES = ("a", "b", "c")


async def _ask(nodes: Fleet, name: str, body: dict[str, Any], **headers: str) -> Any:
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return await nodes[name].chat({"model": "llm", **body}, headers=named)


async def _served_by(nodes: Fleet, name: str, body: dict[str, Any], **headers: str) -> str:
    answer = await _ask(nodes, name, body, **headers)
    assert answer.status == 200
    return str(answer.headers["x-served-by"])


async def test_a_session_stays_on_its_replica_whatever_node_is_asked(llm: StandIn) -> None:
    own = (replace(llm.as_model(), affinity=Affinity.SESSION),)
    async with fleet(a=own, b=own, c=own) as nodes:
        replicas = set()
        for session in map(str, range(12)):
            by = {await _served_by(nodes, name, {}, X_Session_Id=session) for name in NODES}
            users = {await _served_by(nodes, name, {"user": session}) for name in NODES}
            assert (len(by), len(users)) == (1, 1)
            replicas |= by
        assert len(replicas) == 3


async def test_a_conversation_stays_where_its_beginning_is_known(llm: StandIn) -> None:
    own = (replace(llm.as_model(), affinity=Affinity.PREFIX),)
    async with fleet(a=own, b=own, c=own) as nodes:
        replicas = set()
        for story in range(12):
            said = [{"role": "user", "content": f"{story}. Tell me a story. " * 80}]
            by = set()
            for name in NODES:
                by.add(await _served_by(nodes, name, {"messages": list(said)}))
                said.append({"role": "user", "content": "And then?"})
            assert len(by) == 1
            replicas |= by
        assert len(replicas) == 3


async def test_a_large_body_has_its_key_too(llm: StandIn) -> None:
    own = (replace(llm.as_model(), affinity=Affinity.SESSION),)
    large = {"messages": [{"role": "user", "content": "x" * 400_000}]}
    async with fleet(a=own, b=own, c=own) as nodes:
        for user in ("1", "2", "3", "4"):
            small = await _served_by(nodes, "a", {"user": user})
            assert await _served_by(nodes, "b", {**large, "user": user}) == small


async def test_each_answer_says_which_figures_led_there(llm: StandIn) -> None:
    own, chance = (llm.as_model(max_in_flight=8),), random.Random(8)
    async with fleet(a=own, b=own, c=own) as nodes:
        for _ in range(30):
            for name in NODES:
                nodes.load(name, in_flight=chance.randrange(7), kv_usage=chance.random())
            answer = await _ask(nodes, chance.choice(NODES), {}, X_Xgen_Debug="route")
            told = json.loads(answer.headers["x-xgen-route"])
            again = rank(of_explanation(told), tie=told["tie"])
            assert names(again) == [each["node"] for each in told["candidates"]]
            best = admitted(again)[0].candidate.node
            assert (best, f"{best}/llm") == (told["node"], answer.headers["x-served-by"])


async def test_this_nodes_gpus_count_as_those_of_others(llm: StandIn) -> None:
    """Full GPUs are usual: a node that thought its own ones empty would take all requests."""
    gpu = Device(
        index=0, identity="u", uuid="u", pci=None, name="g", vendor="nvidia", gpu_class="g"
    )
    devices = (replace(gpu, memory_free_bytes=2**20), replace(gpu, index=1))
    own = (llm.as_model(),)
    async with fleet(a=own, b=own) as nodes:
        board = nodes["a"].board
        board.put(replace(board.now, devices=devices))
        answer = await _ask(nodes, "a", {}, X_Xgen_Debug="route")
        told = {
            each["node"]: each for each in json.loads(answer.headers["x-xgen-route"])["candidates"]
        }
        assert told["node-a"]["gpu_free_bytes"] == 2**20


@asynccontextmanager
async def engine_that_answers(status: bytes) -> AsyncIterator[ModelStatus]:
    """With this, and nothing else, to whatever it is asked."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 %s\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}" % status)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield model(port=server.sockets[0].getsockname()[1])


async def _statuses(nodes: Fleet, name: str, count: int) -> Counter[int]:
    return Counter([(await _ask(nodes, name, {})).status for _ in range(count)])


async def test_a_replica_that_fails_is_left_alone(llm: StandIn) -> None:
    """It answers at once and has never anything in flight: it would draw every request."""
    async with (
        engine_that_answers(b"500 Broken") as broken,
        fleet(a=(), b=(broken,), c=(llm.as_model(),)) as nodes,
    ):
        nodes.load("c", in_flight=6)
        found = await _statuses(nodes, "a", 40)
        assert 1 <= found[500] < 12  # some probes, by the time that this takes
        assert found[200] == 40 - found[500]


async def test_refusals_that_clients_have_earned_open_no_breaker(llm: StandIn) -> None:
    async with (
        engine_that_answers(b"400 Bad") as picky,
        fleet(a=(), b=(picky,), c=(llm.as_model(),)) as nodes,
    ):
        for _ in range(10):
            nodes.load("c", in_flight=6)
            assert (await _ask(nodes, "a", {})).status == 400


async def test_the_only_replica_is_asked_however_often_it_failed(llm: StandIn) -> None:
    async with (
        engine_that_answers(b"500 Broken") as broken,
        fleet(a=(), b=(broken,)) as nodes,
    ):
        assert await _statuses(nodes, "a", 12) == {500: 12}
