"""A new spec cannot start after the old process was stopped: the last good one serves again (R7).

Scenario 15, ray#66290: an update that cannot load removes nothing that serves.
"""

import json
import signal
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from tests.e2e.agent import Agent, Entry
from tests.e2e.manifests import manifest, model
from tests.waiting import wait_until

GOOD = "--chunks 3"


def entry(stand_in: str = GOOD, **fields: str) -> str:
    """`recreate`: the old process has ended before the new one starts."""
    return model("a", strategy="recreate", env=f'{{STAND_IN: "{stand_in}"}}', **fields)


def is_reverted(found: Entry) -> bool:
    return found["degraded"] is not None and found["state"] == "loaded"


def is_as_wanted(found: Entry) -> bool:
    return (found["degraded"], found["target"], found["state"]) == (None, None, "loaded")


def up(agent: Agent, *models: str) -> Entry:
    """With the good spec serving."""
    agent.write(manifest(*(models or (entry(),))))
    agent.start()
    agent.wait_up()
    return agent.wait_state("a", "loaded")


def needed(agent: Agent) -> set[str]:
    """Prefixes whose files must stay."""
    told = [json.loads(path.read_bytes()) for path in (agent.data / "models/.use").glob("*.json")]
    return {pin["prefix"] for each in told for pin in each.get("pins", ())}


def events(agent: Agent) -> list[str]:
    told = agent.client.get(f"{agent.url}/api/management/events", params={"model": "a"}).json()
    return [event["kind"] for event in told["events"]]


def told_of(agent: Agent, *words: str) -> bool:
    """Of a file that was written anew."""
    told = agent.client.get(f"{agent.url}/api/management/events").json()["events"]
    reasons = [each["reason"] for each in told if each["kind"] == "RecordRewritten"]
    return any(all(word in reason for word in words) for reason in reasons)


def kill(agent: Agent) -> None:
    assert agent.process is not None
    agent.process.send_signal(signal.SIGKILL)
    agent.process.wait(10)


@pytest.mark.parametrize(
    ("stand_in", "why"),
    [
        ("--exit-after 0 --exit-code 3", "exited with code 3"),
        pytest.param("--trap", "SIGILL", marks=pytest.mark.slow),
        pytest.param("--ready-after 600", "not ready within 2s", marks=pytest.mark.slow),
        pytest.param("--hang-on-load", "not ready within 2s", marks=pytest.mark.slow),
    ],
)
def test_what_cannot_load_gives_way_to_the_last_good_spec(
    agent: Agent, stand_in: str, why: str
) -> None:
    good = up(agent, entry(timeouts="{ready: 2s, stop: 1s}"))
    agent.write(manifest(entry(stand_in, timeouts="{ready: 2s, stop: 1s}")))

    found = agent.wait_model("a", is_reverted)

    assert found["spec_hash"] == good["spec_hash"]
    assert found["pid"] != good["pid"]
    assert found["target"]["state"] == "error"
    assert found["target"]["spec_hash"] != good["spec_hash"]
    assert why in found["target"]["reason"]
    assert "next try after 5 min" in found["target"]["reason"]
    assert found["retry_at"]
    condition = agent.wait_condition("Degraded", "True")
    assert "a: runs its last good spec" in condition["message"]
    answer = agent.post("/v1/chat/completions", {"model": "a", "messages": []})
    assert answer.status_code == 200
    assert events(agent).count("ModelReverted") == 1

    agent.write(manifest(entry("--chunks 4", timeouts="{ready: 2s, stop: 1s}")))

    agent.wait_model("a", is_as_wanted)
    agent.wait_condition("Degraded", "False")


@pytest.mark.slow
def test_an_operator_may_have_it_tried_at_once(agent: Agent) -> None:
    up(agent)
    flaw = agent.root / "flaw"
    flaw.touch()
    agent.write(manifest(entry(f"--exit-code 3 --exit-while {flaw}")))
    agent.wait_model("a", is_reverted)
    flaw.unlink()

    answer = agent.client.post(
        f"{agent.url}/api/management/reconcile", json={"retry": True, "model": "a"}
    )

    assert answer.json()["retried"] == ["a"]
    agent.wait_model("a", is_as_wanted)


@pytest.mark.slow
def test_keep_leaves_it_failed_and_stop_tries_it_no_more(agent: Agent) -> None:
    up(agent, entry(on_failure="keep"))
    agent.write(manifest(entry("--exit-after 0 --exit-code 3", on_failure="keep")))
    kept = agent.wait_state("a", "error")
    assert (kept["degraded"], kept["pid"]) == (None, None)
    agent.write(manifest(entry("--exit-after 0 --exit-code 4", on_failure="stop")))
    stopped = agent.wait_model("a", lambda each: "code 4" in each["reason"])
    assert (stopped["state"], stopped["retry_at"]) == ("blocked", None)
    agent.write(manifest(entry("--exit-after 0 --exit-code 4")))
    agent.wait_model("a", is_reverted)


@pytest.mark.slow
def test_nothing_comes_back_where_nothing_is_kept(agent: Agent) -> None:
    up(agent, entry(keep_last_good="false"))
    agent.write(manifest(entry("--exit-after 0 --exit-code 3", keep_last_good="false")))
    blocked = agent.wait_state("a", "blocked")
    assert blocked["degraded"] is None
    assert "crash loop, 3 failures in a row" in blocked["reason"]
    assert events(agent).count("CrashLoop") == 1
    kill(agent)
    agent.start()
    agent.wait_up()
    again = agent.wait_state("a", "blocked")
    assert "crash loop, 3 failures in a row" in again["reason"]
    assert events(agent).count("CrashLoop") == 0


@pytest.mark.slow
def test_the_next_try_of_what_failed_is_due_when_it_was_whatever_becomes_of_the_agent(
    agent: Agent,
) -> None:
    up(agent)
    agent.write(manifest(entry("--exit-after 0 --exit-code 3")))
    before = agent.wait_model("a", is_reverted)
    for end in (kill, Agent.stop):
        end(agent)
        agent.start()
        agent.wait_up()
        after = agent.wait_model("a", is_reverted)
        moved = datetime.fromisoformat(after["retry_at"]) - datetime.fromisoformat(
            before["retry_at"]
        )
        assert abs(moved) < timedelta(seconds=1)
        assert after["target"] == before["target"]


@pytest.mark.slow
def test_a_block_and_the_last_good_spec_outlive_the_agent(agent: Agent) -> None:
    good = up(agent, entry(on_failure="stop"))
    agent.model_file("gguf/other_model")
    bad = {"source": "gguf/other_model", "stand_in": "--exit-after 0 --exit-code 3"}
    agent.write(manifest(entry(**bad, on_failure="stop")))
    before = agent.wait_state("a", "blocked")
    kill(agent)
    agent.start()
    agent.wait_up()
    blocked = agent.wait_model("a", lambda found: bool(found["state"] != "pending"))
    assert blocked["state"] == "blocked"
    assert "code 3" in blocked["reason"]
    assert blocked["restarts"] == before["restarts"] == 1
    wait_until(lambda: "gguf/test_model" in needed(agent), what="the last good files are kept")

    agent.write(manifest(entry(**bad)))

    found = agent.wait_model("a", is_reverted)
    assert found["spec_hash"] == good["spec_hash"]
    assert found["target"]["state"] == "blocked"


@pytest.mark.slow
def test_a_history_that_cannot_be_read_is_told_kept_and_stops_nothing(agent: Agent) -> None:
    good = up(agent)
    kill(agent)
    path = agent.data / "history/a.json"
    torn = path.read_bytes()[:40]
    path.write_bytes(torn)
    agent.start()
    agent.wait_up()
    found = agent.wait_state("a", "loaded")
    assert found["pid"] == good["pid"]
    kept = Path(f"{path}.unread")
    wait_until(
        lambda: told_of(agent, f"cannot read {path}: ", f"as {kept}, and"), what="it is told"
    )
    assert kept.read_bytes() == torn
    wait_until(lambda: agent.condition("HistoryKept") is None, what="it is known again")
    assert json.loads(path.read_bytes())["last_good"]["spec"]["source"] == "gguf/test_model"
