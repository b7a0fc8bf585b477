"""A model's checks stand between its load and its traffic. The stand-in says "token0 token1 …"."""

import pytest

from tests.e2e.agent import Agent
from tests.e2e.manifests import manifest, model
from tests.waiting import wait_until

RIGHT = '{prompt: "count", contains: ["9", "token1"]}'
CHAT = '{message: "count", contains: token2}'
WRONG = '{message: "count", contains: [Paris, Lyon]}'


def checked(*checks: str, **fields: str) -> str:
    return manifest(model("a", checks=f"[{', '.join(checks)}]", **fields))


def asked(agent: Agent, port: int) -> int:
    """How many inference requests the backend itself has seen."""
    seen = agent.client.get(f"http://127.0.0.1:{port}/debug/state").json()["seen"]
    assert isinstance(seen, int)
    return seen


def test_what_passes_its_checks_serves_and_another_check_restarts_nothing(agent: Agent) -> None:
    agent.write(checked(RIGHT, CHAT))
    agent.start()
    agent.wait_up()
    loaded = agent.wait_state("a", "loaded")
    assert asked(agent, loaded["port"]) == 3  # its first answer, and the two checks
    applied = agent.self_view()["revision"]["applied"]
    agent.write(checked(WRONG))
    wait_until(
        lambda: agent.self_view()["revision"]["applied"] != applied, what="the edit is taken"
    )
    answer = agent.post("/v1/chat/completions", {"model": "a", "messages": []})
    assert answer.status_code == 200
    same = agent.wait_state("a", "loaded")
    assert (same["pid"], same["restarts"]) == (loaded["pid"], 0)
    assert asked(agent, loaded["port"]) == 4


def test_what_fails_a_check_never_serves_and_says_what_came(agent: Agent) -> None:
    agent.write(checked(RIGHT, WRONG, CHAT))
    agent.start()
    agent.wait_up()
    failed = agent.wait_state("a", "error")
    assert (
        "check 2 of 3 failed: the message 'count' should give 'Paris' or 'Lyon'; "
        "what came: 'token0 token1 token2 '"
    ) in failed["reason"]
    assert (failed["pid"], agent.processes()) == (None, [])
    answer = agent.post("/v1/chat/completions", {"model": "a", "messages": []})
    assert answer.status_code == 503
    assert "check 2 of 3 failed" in answer.json()["error"]["message"]
    agent.write(checked(RIGHT, CHAT))
    agent.wait_state("a", "loaded")
    forgiven = [
        event["reason"]
        for event in agent.client.get(f"{agent.url}/api/management/events").json()["events"]
        if event["kind"] == "FailureForgiven"
    ]
    assert len(forgiven) == 1
    assert "its checks or timeouts have changed" in forgiven[0]


@pytest.mark.slow
def test_a_wrong_check_does_not_bar_the_last_good_spec(agent: Agent) -> None:
    agent.write(manifest(model("a", strategy="recreate")))
    agent.start()
    agent.wait_up()
    agent.wait_state("a", "loaded")
    changed = "{ctx_size: 256}"
    agent.write(checked(WRONG, strategy="recreate", extra_args=changed))
    back = agent.wait_model(
        "a", lambda entry: entry["degraded"] is not None and entry["state"] == "loaded"
    )
    assert "check 1 of 1 failed" in back["target"]["reason"]
    answer = agent.post("/v1/chat/completions", {"model": "a", "messages": []})
    assert answer.status_code == 200


@pytest.mark.slow
def test_checks_that_were_edited_while_no_agent_ran_lift_their_block(agent: Agent) -> None:
    agent.write(checked(WRONG, on_failure="stop"))
    agent.start()
    agent.wait_up()
    agent.wait_state("a", "blocked")
    for check in (WRONG, RIGHT):
        assert agent.stop() == 0
        agent.write(checked(check, on_failure="stop"))
        agent.start()
        agent.wait_up()
        agent.wait_state("a", "blocked" if check is WRONG else "loaded")


@pytest.mark.slow
def test_a_check_that_gets_no_answer_in_time_has_failed(agent: Agent) -> None:
    never = '{STAND_IN: "--hang --probe-well"}'
    agent.write(checked(RIGHT, env=never, timeouts="{first_answer: 2s}"))
    agent.start()
    agent.wait_up()
    agent.wait_model("a", lambda entry: entry["reason"].endswith("; runs check 1 of 1"))
    failed = agent.wait_state("a", "error")
    assert "what came: nothing came within 2 s" in failed["reason"]


def test_a_vector_comes_from_a_file_of_the_model(agent: Agent) -> None:
    vector = agent.model_file(name="checks/count.json")
    vector.write_text("[1, -0.5, 0.25]", encoding="utf-8")
    check = '{input: count, embedding_file: "@/checks/count.json"}'
    agent.write(checked(check, "{input: count, embedding: [1, 1, 1]}", type="embedding"))
    agent.start()
    agent.wait_up()
    failed = agent.wait_state("a", "error")
    assert (
        "check 2 of 2 failed: the embedding of 'count' should have a cosine of at least 0.99 to "
        "the one expected; what came: 0.3780"
    ) in failed["reason"]


@pytest.mark.slow
def test_a_file_that_the_hub_does_not_hold_is_told_before_a_start(agent: Agent) -> None:
    check = '{input: count, embedding_file: "@/none.json"}'
    agent.write(checked(check, type="embedding"))
    agent.start()
    agent.wait_up()
    failed = agent.wait_state("a", "error")
    assert "no none.json, which a check names" in failed["reason"]
