"""Many requests at several nodes while everything fails: nothing is left behind, nothing hangs."""

import asyncio
import json
import random

import aiohttp

from tests.proxy.agent import Agent
from tests.proxy.fleet import Fleet, fleet, until
from tests.proxy.stand_in import StandIn, StartStandIn

REQUESTS, AT_A_TIME = 240, 24
FLAGS = (
    ("--first-byte-after", "0.01"),
    ("--reset-before-first-byte",),
    ("--reset-mid-stream",),
    ("--reset-reused",),
)
ENDINGS = {200, 429, 502, 503}


async def _request(agent: Agent, chance: random.Random) -> int | None:
    """The status; None: its answer was cut, or its client has left."""
    body = {"model": "llm", "stream": chance.random() < 0.5, "user": str(chance.random())}
    limit = 0.02 if chance.random() < 0.2 else 30.0
    try:
        async with asyncio.timeout(limit):
            return (await agent.chat(body)).status
    except (aiohttp.ClientError, TimeoutError):
        return None


async def _faults(nodes: Fleet, backends: list[StandIn], chance: random.Random) -> None:
    """What nodes know of each other, and what they have, changes all the time."""
    while True:
        letter = chance.choice("abc")
        agent = nodes[letter]
        if chance.random() < 0.3:
            agent.board.set()
        else:
            agent.board.set(
                chance.choice(backends).as_model(max_in_flight=chance.choice((1, 2, 4)))
            )
        for mates in nodes.mates.values():
            mates.lost.clear()
        await asyncio.sleep(0.01)


async def test_a_storm_leaves_nothing_behind(stand_in: StartStandIn) -> None:
    backends = [stand_in(*flags) for flags in FLAGS]
    chance = random.Random(8)
    told = backends[0].as_model(max_in_flight=2)
    settings = {"queue_length": 8, "queue_seconds": 5.0}
    async with fleet(a=(told,), b=(told,), c=(), settings=settings) as nodes:
        faults = asyncio.create_task(_faults(nodes, backends, chance))
        room = asyncio.Semaphore(AT_A_TIME)

        async def one() -> int | None:
            async with room:
                return await _request(nodes[chance.choice("abc")], chance)

        came = await asyncio.gather(*(one() for _ in range(REQUESTS)))
        faults.cancel()
        await asyncio.wait((faults,))
        assert {each for each in came if each is not None} <= ENDINGS | {404}
        await until(lambda: nodes.under_way == 0)
        nodes["c"].board.set(told)
        for letter in "abc":
            for mates in nodes.mates.values():
                mates.lost.clear()
            answer = await nodes[letter].get("/api/cluster/route?model=llm")
            page = json.loads(answer.body)
            assert all(each["breaker"] != "probing" for each in page["candidates"])
