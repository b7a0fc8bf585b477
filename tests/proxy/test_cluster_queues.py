"""`max_in_flight` over several nodes: it holds at each, and nobody waits beside a free slot."""

import asyncio
import json
from collections.abc import Sequence

from reconciler.plan.ids import ModelName
from reconciler.plan.phase import State
from reconciler.proxy.peers.load import ModelLoad
from tests.proxy.agent import Agent, Answer
from tests.proxy.builders import KEY, model
from tests.proxy.fleet import fleet, raw_peer, until
from tests.proxy.stand_in import StandIn, StartStandIn

ASK = {"model": "llm"}


def ask(agent: Agent, count: int = 1) -> list["asyncio.Task[Answer]"]:
    return [asyncio.create_task(agent.chat(ASK)) for _ in range(count)]


async def until_waiting(agent: Agent, count: int) -> None:
    sample = f'xgen_requests_waiting{{model="llm"}} {count}.0\n'.encode()
    while sample not in (await agent.get("/metrics")).body:
        pass


async def most_at_a_time(backend: StandIn, tasks: Sequence["asyncio.Task[Answer]"]) -> int:
    most = 0
    while not all(task.done() for task in tasks):
        most = max(most, (await backend.state())["running"])
    return most


async def test_no_replica_ever_has_more_whoever_asks(stand_in: StartStandIn) -> None:
    """litellm PR#24988: a limit was bypassed (scenario 62)."""
    backends = [stand_in("--first-byte-after", "0.05") for _ in range(2)]
    first, second = (each.as_model(max_in_flight=2) for each in backends)
    async with fleet(a=(first,), b=(second,), c=()) as nodes:
        asked = [task for name in ("a", "b", "c") for task in ask(nodes[name], 6)]
        most = await asyncio.gather(*(most_at_a_time(each, asked) for each in backends))
        assert [task.result().status for task in asked] == [200] * 18
        assert max(most) <= 2
        assert nodes.under_way == 0


async def test_a_request_goes_where_a_slot_is_free(stand_in: StartStandIn) -> None:
    hangs, free = stand_in("--hang"), stand_in()
    busy, idle = (each.as_model(max_in_flight=1) for each in (hangs, free))
    async with fleet(a=(busy,), b=(idle,)) as nodes:
        pinned = {"X-Target-Server": "node-a"}
        holding = asyncio.create_task(nodes["a"].chat(ASK, headers=pinned))
        await hangs.until_running(1)
        for _ in range(3):
            assert (await nodes["a"].chat(ASK)).headers["x-served-by"] == "node-b/llm"
        holding.cancel()
        await asyncio.wait((holding,))
        await until(lambda: nodes.under_way == 0)


async def test_who_waits_here_takes_the_slot_that_is_free_at_a_peer(
    stand_in: StartStandIn,
) -> None:
    """One after the other, as they came. The slot was taken by somebody of whom this node knows
    nothing."""
    here, there = stand_in("--hang"), stand_in("--hang")
    own, others = (each.as_model(max_in_flight=1) for each in (here, there))
    async with fleet(a=(own,), b=(others,), sees_all=True) as nodes:
        held = {}
        for name, backend in (("a", here), ("b", there)):
            _, held[name] = await nodes[name].send_raw(ASK)
            await backend.until_running(1)
        waiting = []
        for number in range(3):
            _, writer = await nodes["a"].send_raw({**ASK, "user": str(number)})
            waiting.append(writer)
            await until_waiting(nodes["a"], number + 1)
        leaving = held["b"]
        for number, writer in enumerate(waiting):
            leaving.close()
            await until_waiting(nodes["a"], 2 - number)
            while (await there.state())["seen"] != number + 2:
                pass
            assert json.loads(await there.last_body())["user"] == str(number)
            leaving = writer
        assert (await here.state())["seen"] == 1
        for writer in (*waiting, held["a"]):
            writer.close()
        await until(lambda: nodes.under_way == 0)


async def test_who_waits_and_leaves_leaves_nothing_behind(stand_in: StartStandIn) -> None:
    here, there = stand_in("--hang"), stand_in("--hang")
    own, others = (each.as_model(max_in_flight=1) for each in (here, there))
    async with fleet(a=(own,), b=(others,), sees_all=True) as nodes:
        held = {}
        for name, backend in (("a", here), ("b", there)):
            _, held[name] = await nodes[name].send_raw(ASK)
            await backend.until_running(1)
        waiting = [(await nodes["a"].send_raw(ASK))[1] for _ in range(5)]
        await until_waiting(nodes["a"], 5)
        for writer in waiting:
            writer.close()
        await until_waiting(nodes["a"], 0)
        for writer in held.values():
            writer.close()
        await until(lambda: nodes.under_way == 0)
        assert (await here.state())["seen"] == (await there.state())["seen"] == 1


async def test_who_comes_later_does_not_pass_who_waits(stand_in: StartStandIn) -> None:
    here, there = stand_in("--hang"), stand_in("--hang")
    own, others = (each.as_model(max_in_flight=1) for each in (here, there))
    async with fleet(a=(own,), b=(others,), sees_all=True) as nodes:
        held = {}
        for name, backend in (("a", here), ("b", there)):
            _, held[name] = await nodes[name].send_raw(ASK)
            await backend.until_running(1)
        await nodes["a"].send_raw({**ASK, "user": "first"})
        await until_waiting(nodes["a"], 1)
        held["b"].close()
        await nodes["a"].send_raw({**ASK, "user": "second"})
        await there.until(lambda state: state["seen"] == 2)
        assert json.loads(await there.last_body())["user"] == "first"
        await until_waiting(nodes["a"], 1)
        for agent in nodes.nodes.values():
            for writer in agent.connections:
                writer.close()
        await until(lambda: nodes.under_way == 0)


async def test_a_full_queue_at_the_peer_is_tried_elsewhere_then_429(
    stand_in: StartStandIn,
) -> None:
    hangs = stand_in("--hang")
    told = hangs.as_model(max_in_flight=1)
    async with fleet(a=(), b=(told,), settings={"queue_length": 1}) as nodes:
        for count in (1, 2):
            await nodes["b"].send_raw(ASK)
            await until(lambda n=count: len(nodes["b"].connections) == n)
        await hangs.until_running(1)
        await until_waiting(nodes["b"], 1)
        answer = await nodes["a"].chat(ASK)
        assert (answer.status, answer.error["code"]) == (429, "rate_limit_exceeded")
        assert answer.headers["x-xgen-not-started"] == "1"
        assert answer.headers["x-served-by"] == "node-b/llm"


async def test_a_waiting_request_is_told_when_its_model_is_disabled(stand_in: StartStandIn) -> None:
    here, there = stand_in("--hang"), stand_in("--hang")
    own, others = (each.as_model(max_in_flight=1) for each in (here, there))
    async with fleet(a=(own,), b=(others,), sees_all=True) as nodes:
        for name, backend in (("a", here), ("b", there)):
            await nodes[name].send_raw(ASK)
            await backend.until_running(1)
        (waiting,) = ask(nodes["a"])
        await until_waiting(nodes["a"], 1)
        nodes["a"].board.set(model("llm", state=State.DISABLED))
        assert (await waiting).error["code"] == "model_disabled"


async def test_without_a_replica_here_the_first_free_slot_anywhere_is_taken(
    stand_in: StartStandIn,
) -> None:
    """Nobody tells this node that a slot is free, but the peer that it asks."""
    one, other = stand_in("--hang"), stand_in("--hang")
    first, second = (each.as_model(max_in_flight=1) for each in (one, other))
    async with fleet(a=(), b=(first,), c=(second,), token="t") as nodes:
        for name in ("b", "c"):
            nodes.load(name, in_flight=1)
        held = {}
        for name, backend in (("b", one), ("c", other)):
            pinned = {"X-Target-Server": f"node-{name}"}
            held[name] = asyncio.create_task(nodes[name].chat(ASK, headers=pinned))
            await backend.until_running(1)
        (waiting,) = ask(nodes["a"])
        await asyncio.sleep(0)
        held["c"].cancel()
        await other.until(lambda state: state["seen"] == 2 and state["running"] == 1)
        assert (await one.state())["seen"] == 1
        for task in (waiting, held["b"]):
            task.cancel()
        await asyncio.wait((waiting, *held.values()))
        await until(lambda: nodes.under_way == 0)


async def test_who_finds_no_slot_stands_in_the_queue_of_a_peer(stand_in: StartStandIn) -> None:
    """Else those who come there would come first, again and again."""
    hangs = stand_in("--hang")
    async with fleet(a=(), b=(hangs.as_model(max_in_flight=1),)) as nodes:
        nodes.load("b", in_flight=1)
        _, running = await nodes["b"].send_raw(ASK)
        await hangs.until_running(1)
        await nodes["a"].send_raw({**ASK, "user": "of a"})
        await until_waiting(nodes["b"], 1)
        await nodes["b"].send_raw({**ASK, "user": "later"})
        await until_waiting(nodes["b"], 2)
        running.close()
        await hangs.until(lambda state: state["seen"] == 2)
        assert json.loads(await hangs.last_body())["user"] == "of a"
        for agent in nodes.nodes.values():
            for writer in agent.connections:
                writer.close()
        await until(lambda: nodes.under_way == 0)


async def test_a_slot_is_told_of_to_agents_only(stand_in: StartStandIn) -> None:
    idle = stand_in()
    async with fleet(a=(), b=(idle.as_model(max_in_flight=1),), token="t") as nodes:
        path = "/api/cluster/slot?model=llm&wait=60"
        assert (await nodes["b"].get(path)).status == 403
        told = await nodes["b"].get(path, headers={"X-Xgen-Cluster-Token": "t"})
        assert (told.status, told.json["room"]) == (200, True)
        assert told.json["load"].startswith("in_flight=0")


async def test_where_there_is_no_replica_no_slot_is_told_of(stand_in: StartStandIn) -> None:
    """One that waits for a slot there would be sent, and refused."""
    hangs = stand_in("--hang")
    asks = "/api/cluster/slot?model={}&wait={}".format
    async with fleet(a=(model("new"), hangs.as_model(max_in_flight=1))) as nodes:
        agent = nodes["a"]
        for name, refusal in (("no", (404, "model_not_found")), ("new", (503, "model_not_ready"))):
            told = await agent.get(asks(name, 0))
            assert (told.status, told.error["code"]) == refusal
        _, running = await agent.send_raw(ASK)
        await hangs.until_running(1)
        waiting = asyncio.create_task(agent.get(asks("llm", 60)))
        assert (await agent.get(asks("llm", 0))).json["room"] is False
        agent.board.set(model("llm", state=State.UNLOADING))
        running.close()
        assert (await waiting).error["code"] == "model_not_ready"


async def test_a_peer_is_told_for_how_long_a_request_has_waited(stand_in: StartStandIn) -> None:
    there = stand_in()
    async with fleet(a=()) as nodes:
        mates = nodes.mates["node-a"]
        told = there.as_model(max_in_flight=1)
        assert told.endpoint is not None
        mates.raw.append(full := raw_peer(told.endpoint.port, told, node="node-b"))
        mates.heard(full.address, ModelName("llm"), ModelLoad(in_flight=1))
        forged = {"X-Xgen-Waited": "7", "Authorization": f"Bearer {KEY}"}
        assert (await nodes["a"].chat(ASK, headers=forged)).status == 200
        said = [value for name, value in await there.last_headers() if name == "x-xgen-waited"]
        assert [0 < float(each) < 7 for each in said] == [True]


async def test_what_a_request_has_waited_elsewhere_counts(stand_in: StartStandIn) -> None:
    hangs = stand_in("--hang")
    busy = hangs.as_model(max_in_flight=1)
    async with fleet(a=(busy,), settings={"queue_seconds": 3600.0}) as nodes:
        await nodes["a"].send_raw(ASK)
        await hangs.until_running(1)
        came = {"X-Cluster-Routed": "node-b", "X-Xgen-Waited": "3600.0"}
        answer = await nodes["a"].chat(ASK, headers=came)
        assert (answer.status, answer.error["code"]) == (503, "queue_timeout")


async def test_however_often_it_chooses_anew_its_whole_wait_is_bounded(
    stand_in: StartStandIn,
) -> None:
    """This node has a replica and has none, so that it waits here, and anywhere, in turn."""
    here, there = stand_in("--hang"), stand_in("--hang")
    own, others = (each.as_model(max_in_flight=1) for each in (here, there))
    bounds = {"queue_seconds": 2.0}
    async with fleet(a=(own,), b=(others,), sees_all=True, settings=bounds) as nodes:
        for name, backend in (("a", here), ("b", there)):
            await nodes[name].send_raw(ASK)
            await backend.until_running(1)
        (waiting,) = ask(nodes["a"])
        while not waiting.done():
            for told in (model("llm", max_in_flight=1), own):
                nodes["a"].board.set(told)
                await asyncio.wait((waiting,), timeout=0.2)
        assert ((await waiting).status, (await waiting).error["code"]) == (503, "queue_timeout")
        for agent in nodes.nodes.values():
            for writer in agent.connections:
                writer.close()
        await until(lambda: nodes.under_way == 0)
