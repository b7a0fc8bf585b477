"""An agent that comes up on a full disk: what runs has to be served all the same."""

import httpx
import pytest

from tests.chaos.disk import small_disk
from tests.e2e.agent import Agent, is_alive
from tests.e2e.manifests import manifest, model
from tests.e2e.test_adoption import kill, loaded, start
from tests.ports import own_ports
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


def test_it_goes_on_with_what_runs_and_says_where_it_answers_once_there_is_room(
    agent: Agent,
) -> None:
    address = f"127.0.0.1:{own_ports()[-1]}"
    with small_disk(agent.data) as disk:
        if not disk.small:
            pytest.skip("needs the right to mount")
        agent.write(manifest(model("a")))
        start(agent)
        before = loaded(agent, "a")
        kill(agent)
        disk.fill()

        agent.start("--listen", address)

        wait_until(lambda: answers(address), what="it answers")
        assert is_alive(before["a"])
        disk.free()
        agent.wait_up()
        assert agent.url == f"http://{address}"
        assert loaded(agent, "a") == before
        assert agent.stop() == 0
        assert agent.processes() == []


def answers(address: str) -> bool:
    body = {"model": "a", "messages": [], "max_tokens": 1}
    url = f"http://{address}/v1/chat/completions"
    try:
        return httpx.post(url, json=body, timeout=30, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False
