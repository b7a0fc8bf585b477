"""A model whose engine has more to do than it can stays what it is: loaded."""

import asyncio

import aiohttp
import httpx
import pytest

from tests.e2e.agent import Agent
from tests.e2e.manifests import manifest, model
from tests.waiting import wait_until

CROWD = 50


@pytest.mark.slow
def test_a_busy_engine_is_neither_probed_nor_restarted(agent: Agent) -> None:
    """Scenarios 56 to 58: gpustack#3189: probes queued behind users. ray#54070: a health timeout
    under load. gonka PR#1421: a busy engine was restarted eight times a day.
    """
    agent.write(manifest(model("a", env='{STAND_IN: "--probe-well --hang"}')))
    agent.start()
    agent.wait_up()
    loaded = agent.wait_state("a", "loaded")
    before = _state(loaded["port"])["seen"]
    asyncio.run(_crowd_during(agent, loaded["port"]))
    after = agent.model("a")
    assert after is not None
    assert (after["state"], after["pid"]) == ("loaded", loaded["pid"])
    assert _state(loaded["port"])["seen"] == before + CROWD
    assert after["restarts"] == 0


async def _crowd_during(agent: Agent, port: int) -> None:
    """The crowd asks and gets no answer, while the loop looks at everything again and again."""
    body = {"model": "a", "messages": []}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(agent.url, connector=connector) as session:
        asking = [
            asyncio.create_task(session.post("/v1/chat/completions", json=body).__aenter__())
            for _ in range(CROWD)
        ]
        await asyncio.to_thread(
            wait_until, lambda: _state(port)["running"] == CROWD, what="the engine has them all"
        )
        for _ in range(5):
            async with session.post("/api/management/reconcile", json={}) as answer:
                assert answer.status == 200
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


def _state(port: int) -> dict[str, int]:
    answer = httpx.get(f"http://127.0.0.1:{port}/debug/state", trust_env=False)
    state: dict[str, int] = answer.json()
    return state
