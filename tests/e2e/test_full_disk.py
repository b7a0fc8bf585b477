"""An agent that comes up on a full disk: what runs has to be served all the same."""

import os
import signal

import httpx
import pytest

from tests.chaos.disk import small_disk
from tests.e2e.agent import Agent, Entry, is_alive
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


def test_a_spec_that_meets_a_full_disk_is_tried_again_and_serves_once_there_is_room(
    agent: Agent,
) -> None:
    with small_disk(agent.data) as disk:
        if not disk.small:
            pytest.skip("needs the right to mount")
        agent.write(manifest(model("a", on_failure="stop")))
        start(agent)
        before = loaded(agent, "a")
        disk.fill()
        agent.write(manifest(model("a", on_failure="stop", env="{LEVEL: '2'}")))

        agent.wait_model("a", lambda entry: no_room(entry, "2nd failure in a row"))
        os.kill(before["a"], signal.SIGKILL)
        agent.wait_model("a", lambda entry: no_room(entry, "3rd failure in a row"))
        disk.free()

        agent.wait_model("a", lambda entry: (entry["state"], entry["target"]) == ("loaded", None))
        assert agent.stop() == 0


def no_room(entry: Entry, how_often: str) -> bool:
    told = entry["target"] or entry
    assert told["state"] != "blocked"
    return "no space left on device" in told["reason"] and how_often in told["reason"]


def answers(address: str) -> bool:
    body = {"model": "a", "messages": [], "max_tokens": 1}
    url = f"http://{address}/v1/chat/completions"
    try:
        return httpx.post(url, json=body, timeout=30, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False
