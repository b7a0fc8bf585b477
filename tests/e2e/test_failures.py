"""Backends, stores and agents fail; the node notices, says why, and recovers."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.agent import Agent, is_alive
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import manifest, model


def test_a_killed_backend_is_started_again_and_the_reason_is_visible(agent: Agent) -> None:
    agent.write(manifest(model("a"), model("b")))
    agent.start()
    agent.wait_up()
    victim = agent.wait_state("a", "loaded")["pid"]
    other = agent.wait_state("b", "loaded")["pid"]
    os.kill(victim, signal.SIGKILL)
    failed = agent.wait_state("a", "error")
    assert "SIGKILL" in failed["reason"]
    fresh = agent.wait_state("a", "loaded")
    assert fresh["pid"] != victim
    assert fresh["restarts"] == 1
    assert agent.model("b")["pid"] == other  # type: ignore[index]


@pytest.mark.slow
def test_what_has_died_says_so_while_the_rest_of_it_ends_and_then_when_it_comes_back(
    agent: Agent,
) -> None:
    """Its child takes the two seconds that it has after TERM."""
    agent.write(manifest(model("a", env='{STAND_IN: "--child ignore-term"}')))
    agent.start()
    agent.wait_up()
    victim = agent.wait_state("a", "loaded")["pid"]
    os.kill(victim, signal.SIGKILL)
    message = ""
    for state, said in (
        ("unloading", f"has died (pid {victim}); what is left of it is being ended"),
        ("error", "killed by SIGKILL"),
    ):
        agent.wait_state("a", state)
        answer = agent.post("/v1/chat/completions", {"model": "a", "messages": []})
        assert answer.status_code == 503
        message = answer.json()["error"]["message"]
        assert f"it is {state}: {said}" in message
        assert 1 <= int(answer.headers["retry-after"]) <= 6
    assert "next try after" in message
    assert agent.wait_state("a", "loaded")["restarts"] == 1


@pytest.mark.slow
def test_what_gives_no_first_answer_says_so_until_the_end_of_its_stop(agent: Agent) -> None:
    """It heeds no TERM; its next try waits for more than that."""
    slow = '{STAND_IN: "--first-byte-after 600 --ignore-sigterm"}'
    agent.write(manifest(model("a", env=slow, timeouts="{ready: 2s, stop: 2s}")))
    agent.start()
    agent.wait_up()
    lacks = "first answer: nothing came yet"
    loading = agent.wait_model("a", lambda entry: lacks in entry["reason"])
    assert loading["state"] == "loading"

    begun = agent.wait_state("a", "unloading")
    later = agent.wait_model("a", lambda entry: entry["reason"].endswith("has ended"))
    failed = agent.wait_state("a", "error")

    for each in (begun, later, failed):
        assert each["reason"].count(f"not ready within 2s: {lacks}") == 1, each["reason"]
        assert each["reason"].count(lacks) == 1, each["reason"]
    assert later["state"] == "unloading"


def test_a_backend_that_dies_at_start_is_in_error_with_its_last_lines(agent: Agent) -> None:
    """Scenario 5, llama-swap#100: noticed at once, not after the whole load timeout."""
    agent.write(manifest(model("a", env='{STAND_IN: "--exit-after 0 --exit-code 3"}')))
    agent.start()
    agent.wait_up()
    failed = agent.wait_state("a", "error")
    assert "code 3" in failed["reason"]
    assert failed["last_lines"]
    assert failed["retry_at"]


@pytest.mark.slow
def test_a_backend_that_always_dies_at_start_is_not_retried_in_a_tight_loop(agent: Agent) -> None:
    """R7: the third exit in a row during a load of what was never loaded here blocks it."""
    agent.write(manifest(model("a", env='{STAND_IN: "--exit-after 0 --exit-code 3"}')))
    agent.start()
    agent.wait_up()
    blocked = agent.wait_state("a", "blocked", seconds=60)
    assert (blocked["restarts"], blocked["pid"], blocked["retry_at"]) == (2, None, None)
    agent.write(manifest(model("a")))
    agent.wait_state("a", "loaded")


def test_a_llama_server_that_traps_is_named_and_the_next_engine_is_taken_or_refused(
    make_agent: MakeAgent, tmp_path: Path
) -> None:
    """A binary built for another CPU dies with SIGILL as soon as it runs."""
    trap = tmp_path / "llama-server"
    trap.write_text("#!/bin/sh\nkill -ILL $$\n", encoding="utf-8")
    trap.chmod(0o755)
    agent = make_agent("--llama-server", str(trap), real=True)
    agent.model_file()
    agent.write(manifest(model("a")))
    agent.start()
    agent.wait_up()
    refused = agent.wait_state("a", "blocked")
    assert "SIGILL" in refused["reason"]


def test_a_refused_flag_never_costs_what_serves(agent: Agent) -> None:
    agent.write(manifest(model("a")))
    agent.start()
    agent.wait_up()
    pid = agent.wait_state("a", "loaded")["pid"]
    agent.write(manifest(model("a", extra_args="{port: 99}")))
    condition = agent.wait_condition("ManifestValid", "False")
    assert "port" in condition["message"]
    assert agent.model("a")["pid"] == pid  # type: ignore[index]


@pytest.mark.slow
def test_missing_files_are_waited_for_and_taken_when_they_come(agent: Agent) -> None:
    agent.write(manifest(model("a"), model("later", source="gguf/late_model")))
    agent.start()
    agent.wait_up()
    agent.wait_state("a", "loaded")
    missing = agent.wait_model("later", lambda entry: entry["state"] in ("error", "blocked"))
    assert "gguf/late_model" in missing["reason"]
    agent.model_file("gguf/late_model")
    agent.wait_state("later", "loaded")


@pytest.mark.slow
def test_a_load_that_never_ends_is_given_up_at_its_limit(agent: Agent) -> None:
    agent.write(manifest(model("a", env='{STAND_IN: "--ready-after 600"}', timeouts="{ready: 2s}")))
    agent.start()
    agent.wait_up()
    failed = agent.wait_state("a", "error")
    assert "not ready" in failed["reason"]
    assert failed["retry_at"]
    assert failed["restarts"] == 0


@pytest.mark.slow
def test_an_agent_that_ends_takes_what_an_earlier_one_left_with_it(agent: Agent) -> None:
    """R10, also where nothing was to be done yet: here the node is suspended."""
    agent.write(manifest(model("a")))
    agent.start()
    agent.wait_up()
    left = agent.wait_state("a", "loaded")["pid"]
    assert agent.process is not None
    agent.process.kill()
    agent.process.wait(10)
    agent.write(manifest(model("a"), spec="  suspend: true\n"))
    agent.start()
    agent.wait_up()
    agent.wait_condition("Suspended", "True")
    assert is_alive(left)
    assert agent.stop() == 0
    assert not is_alive(left)


@pytest.mark.slow
def test_a_second_agent_on_the_same_data_folder_is_refused(
    agent: Agent, make_agent: MakeAgent
) -> None:
    agent.write(manifest(model("a")))
    agent.start()
    agent.wait_up()
    answer = subprocess.run(
        [
            *(sys.executable, "-m", "reconciler", "run", "--manifest", str(agent.manifests)),
            *("--data-dir", str(agent.data), "--listen", "127.0.0.1:0"),
        ],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert answer.returncode == 1
    assert "another agent" in answer.stderr


@pytest.mark.parametrize("during", ["load", "run"])
def test_exit_code_0_is_no_proof_of_health(agent: Agent, during: str) -> None:
    when = "--exit-after 0" if during == "load" else "--crash-after-requests 2"
    agent.write(manifest(model("a", env=f'{{STAND_IN: "{when} --exit-code 0"}}')))
    agent.start()
    agent.wait_up()
    if during == "run":
        agent.wait_state("a", "loaded")
        agent.post("/v1/chat/completions", {"model": "a", "messages": []})
    failed = agent.wait_state("a", "error")
    assert "code 0" in failed["reason"]
