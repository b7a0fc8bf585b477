"""What an agent tells another one that follows it."""

import asyncio
import json
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

from reconciler.plan.ids import ModelName, Nonce
from reconciler.proxy.inflight import Traffic
from reconciler.proxy.local_loads import UNTOLD, LocalLoads
from reconciler.proxy.peers.bulletin import Bulletin, Known
from reconciler.proxy.peers.side import ALONE, ClusterSide
from reconciler.proxy.turns import Turns
from tests.proxy.agent import Agent, running_agent
from tests.proxy.builders import NOW, STEADY, Board, Steady, model, status
from tests.proxy.stand_in import StandIn

OURS = "id"
_LONG = 3600.0


def _bulletin(
    board: Board, *, pulse: Steady = STEADY, ending: asyncio.Event | None = None
) -> Bulletin:
    traffic = Traffic()
    return Bulletin(
        board,
        LocalLoads(traffic, Turns(queue_length=1, wait_seconds=1), UNTOLD),
        traffic,
        pulse,
        agent_id=OURS,
        ending=ending or asyncio.Event(),
        pause_seconds=_LONG,
    )


def _known(version: int, *, wait: float = _LONG, silent: bool = False) -> Known:
    return Known(version=version, agent_id=OURS, wait_seconds=wait, silent=silent)


async def _ask(node: Agent, headers: Any = None, **query: object) -> Any:
    path = f"/api/cluster/_self?{urlencode(query)}"
    return await node.get(path, headers=headers)


async def test_who_knows_nothing_gets_all_at_once() -> None:
    async with running_agent(model("llm", port=7)) as agent:
        told = (await _ask(agent, after=-1, agent="", wait=60)).json
        again = (await _ask(agent, after=told["version"], agent="another", wait=60)).json
    assert told["agent_id"] == ALONE.agent_id
    assert (told["node"], again["node"]) == ("node-a", "node-a")


async def test_who_knows_all_waits_and_gets_the_figures_of_what_is_busy(llm: StandIn) -> None:
    async with running_agent(llm.as_model(), model("idle", port=7)) as agent:
        told = (await _ask(agent, after=-1)).json
        with agent.traffic.request(ModelName("llm"), Nonce("n1")):
            small = (
                await _ask(agent, after=told["version"], agent=told["agent_id"], wait=0.01)
            ).json
    load = {"in_flight": 1, "waiting": 0, "queued": None, "kv_usage": None}
    assert small["unchanged"] is True
    assert small["load"] == {"llm": load}
    assert "models" not in small


async def test_the_first_change_comes_at_once_to_all_who_wait() -> None:
    board = Board(status())
    bulletin = _bulletin(board)
    waiting = [asyncio.create_task(bulletin.answer(_known(0))) for _ in range(50)]
    await asyncio.sleep(0)
    board.set(model("llm"))
    bodies = await asyncio.gather(*waiting)
    assert json.loads(bodies[0])["version"] == 1
    assert all(body is bodies[0] for body in bodies)


async def test_changes_in_a_row_are_told_as_one() -> None:
    board, ending = Board(status()), asyncio.Event()
    bulletin = _bulletin(board, ending=ending)
    board.set(model("llm"))
    first = await bulletin.answer(_known(0))
    next_one = asyncio.create_task(bulletin.answer(_known(1)))
    for _ in range(20):
        board.set(model("llm"))
        await asyncio.sleep(0)
    assert not next_one.done()
    ending.set()  # the pause is over, as the agent is
    assert await next_one is first


async def test_that_the_node_drains_waits_for_nothing() -> None:
    board = Board(status())
    bulletin = _bulletin(board)
    board.set(model("llm"))
    await bulletin.answer(_known(0))
    waiting = asyncio.create_task(bulletin.answer(_known(1)))
    board.set(model("llm"))
    await asyncio.sleep(0)
    board.put(replace(board.now, draining=True))
    assert json.loads(await waiting)["draining"] is True


async def test_nobody_holds_up_the_end_of_an_agent() -> None:
    ending = asyncio.Event()
    waiting = asyncio.create_task(_bulletin(Board(status()), ending=ending).answer(_known(0)))
    await asyncio.sleep(0)
    ending.set()
    assert json.loads(await waiting)["unchanged"] is True


async def test_a_loop_that_falls_silent_is_news() -> None:
    board = Board(status(model("llm", port=7)))
    silent = Steady(replace(NOW, silent_since="2026-03-01T12:00:00Z"))
    bulletin = _bulletin(board, pulse=silent)
    told = json.loads(await bulletin.answer(_known(0)))
    assert told["loop"]["silent"] is True
    small = json.loads(await bulletin.answer(_known(0, silent=True, wait=0.0)))
    assert small["loop"]["silent"] is True


async def test_without_the_token_only_the_plain_view_is_given() -> None:
    side = ClusterSide(peers=ALONE.peers, loads=ALONE.loads, tokens=lambda: "secret")
    async with running_agent(cluster=side) as agent:
        plain = await agent.get("/api/cluster/_self")
        refused = await _ask(agent, after=-1)
        wrong = await _ask(agent, after=-1, headers={"X-Xgen-Cluster-Token": "other"})
        right = await _ask(agent, after=-1, headers={"X-Xgen-Cluster-Token": "secret"})
    assert (plain.status, plain.json["node"]) == (200, "node-a")
    assert (refused.status, refused.error["code"]) == (403, "cluster_token_refused")
    assert "has no cluster token" in refused.error["message"]
    assert "is another one" in wrong.error["message"]
    assert right.json["node"] == "node-a"


async def test_a_question_that_is_none_is_refused() -> None:
    async with running_agent() as agent:
        for query in ("after=x", "after=1&wait=-1", "after=1&wait=soon"):
            answer = await agent.get(f"/api/cluster/_self?{query}")
            assert (answer.status, answer.error["code"]) == (400, "invalid_parameter"), query
