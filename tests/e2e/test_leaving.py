"""`--on-exit leave`: the agent ends, its backends do not, and nothing is cut that may end (R9)."""

import signal

import pytest

from tests.cli.command import xgen_model
from tests.e2e.agent import Agent, is_alive
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import manifest, model
from tests.e2e.streams import stream_in_flight
from tests.waiting import wait_until

ENDLESS = '{STAND_IN: "--probe-well --chunks 100000 --chunk-interval 0.05"}'


@pytest.fixture
def leaving(make_agent: MakeAgent) -> Agent:
    """One that leaves its backends; an agent after it that stops them ends each test."""
    agent = make_agent("--on-exit", "leave")
    agent.model_file()
    return agent


def begin(agent: Agent, *models: str, **states: str) -> Agent:
    agent.write(manifest(*models))
    agent.start()
    agent.wait_up()
    for name, state in states.items():
        agent.wait_state(name, state)
    return agent


def end_what_is_left(agent: Agent) -> None:
    agent.start("--on-exit", "stop")
    agent.wait_up()
    assert agent.stop() == 0
    assert agent.processes() == []


def signal_once(agent: Agent, said: str) -> None:
    assert agent.process is not None
    agent.process.send_signal(signal.SIGTERM)
    wait_until(lambda: said in agent.log, what=said)


def ended(agent: Agent) -> int:
    assert agent.process is not None
    return agent.process.wait(60)


def left(agent: Agent) -> list[str]:
    """The pids that the log says are left, in order."""
    lines = [line for line in agent.log.splitlines() if '"backend left"' in line]
    return [line.split('"pid": ')[1].split(",")[0] for line in lines]


@pytest.mark.slow
def test_what_serves_and_what_loads_is_left_and_taken_over(leaving: Agent) -> None:
    slow = model("slow", env='{STAND_IN: "--ready-after 600"}')
    begin(leaving, model("a"), slow, a="loaded", slow="loading")
    assert leaving.process is not None
    assert leaving.self_view()["agent"] == {
        "pid": leaving.process.pid,
        "on_exit": "leave",
        "on_exit_problem": None,
        "supervision": None,
    }
    pids = {entry["name"]: entry["pid"] for entry in leaving.self_view()["models"]}
    assert leaving.stop() == 0
    assert all(is_alive(pid) for pid in pids.values())
    assert sorted(left(leaving)) == sorted(map(str, pids.values()))
    assert "it is loaded" in leaving.log
    assert "it still loads" in leaving.log
    leaving.start("--on-exit", "stop")
    leaving.wait_up()
    leaving.wait_state("a", "loaded")
    leaving.wait_state("slow", "loading")
    assert {entry["name"]: entry["pid"] for entry in leaving.self_view()["models"]} == pids
    assert leaving.stop() == 0
    assert leaving.processes() == []


@pytest.mark.slow
def test_a_change_that_is_left_in_its_middle_is_told_and_finished_by_the_next_agent(
    leaving: Agent,
) -> None:
    begin(leaving, model("a", env=ENDLESS), a="loaded")
    old = leaving.model("a")["pid"]  # type: ignore[index]
    gate = leaving.root / "may-load"
    leaving.write(manifest(model("a", env=f'{{STAND_IN: "--ready-when {gate}"}}')))
    coming = leaving.wait_model("a", lambda entry: (entry["target"] or {}).get("pid") is not None)
    new = coming["target"]["pid"]
    with stream_in_flight(leaving):
        signal_once(leaving, "agent ending")
        told = leaving.wait_model("a", lambda entry: "leaves it running" in entry["reason"])
        assert (told["pid"], told["target"]["pid"]) == (old, new)
        assert "leaves it loading" in told["target"]["reason"]
        signal_once(leaving, "ending without waiting for requests")
    assert ended(leaving) == 0

    shown = xgen_model("status", "--data-dir", leaving.data)
    assert (shown.returncode, shown.stdout) == (1, "")
    assert f"pid {old} (a, which served when its agent ended) still runs" in shown.stderr
    assert f"pid {new} (a, which was loading when its agent ended) still runs" in shown.stderr

    leaving.start("--on-exit", "stop")
    leaving.wait_up()
    both = leaving.wait_model("a", lambda entry: entry["state"] == "loaded")
    assert (both["pid"], both["target"]["pid"]) == (old, new)
    gate.touch()
    done = leaving.wait_model("a", lambda entry: entry["pid"] == new and not entry["draining"])
    assert (done["state"], done["target"]) == ("loaded", None)
    wait_until(lambda: leaving.processes() == [new], what="the end of the old process")
    assert leaving.stop() == 0


@pytest.mark.slow
def test_a_stream_may_end_while_new_requests_are_refused_and_the_status_tells_so(
    leaving: Agent,
) -> None:
    slow = '{STAND_IN: "--probe-well --chunks 30 --chunk-interval 0.1"}'
    begin(leaving, model("a", env=slow), a="loaded")
    with stream_in_flight(leaving) as lines:
        signal_once(leaving, "agent ending")
        leaving.wait_model("a", lambda entry: "leaves it running" in entry["reason"])
        assert leaving.model("a")["state"] == "loaded"  # type: ignore[index]
        answer = leaving.post("/v1/chat/completions", {"model": "a", "messages": []})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "node_draining")
    assert any("[DONE]" in line for line in lines), lines
    assert ended(leaving) == 0
    assert len(leaving.processes()) == 1
    end_what_is_left(leaving)


@pytest.mark.slow
def test_requests_have_no_longer_than_their_model_allows(leaving: Agent) -> None:
    begin(leaving, model("a", env=ENDLESS, timeouts="{drain: 1s}"), a="loaded")
    with stream_in_flight(leaving) as lines:
        signal_once(leaving, "agent ending")
    assert not any("[DONE]" in line for line in lines)
    assert any('"backend_lost"' in line for line in lines), lines[-3:]
    assert ended(leaving) == 0
    assert len(leaving.processes()) == 1
    end_what_is_left(leaving)


@pytest.mark.slow
def test_a_second_signal_does_not_wait_and_a_third_cuts(leaving: Agent) -> None:
    begin(leaving, model("a", env=ENDLESS, timeouts="{drain: 1h}"), a="loaded")
    with stream_in_flight(leaving):
        signal_once(leaving, "agent ending")
        signal_once(leaving, "ending without waiting for requests")
        signal_once(leaving, "killing what is left")
    assert ended(leaving) == 0
    assert len(leaving.processes()) == 1
    end_what_is_left(leaving)


@pytest.mark.slow
def test_a_stop_under_way_comes_to_its_end(leaving: Agent) -> None:
    """Its time to go is not cut short either."""
    reluctant = '{STAND_IN: "--ignore-sigterm"}'
    limits = "{stop: 2s, kill: 10s}"
    begin(leaving, model("a"), model("b", env=reluctant, timeouts=limits), a="loaded", b="loaded")
    going = leaving.model("b")["pid"]  # type: ignore[index]
    leaving.write(manifest(model("a")))
    leaving.wait_state("b", "unloading")
    assert leaving.stop() == 0
    assert not is_alive(going)
    assert len(leaving.processes()) == 1
    end_what_is_left(leaving)


@pytest.mark.slow
def test_what_is_suspended_is_left_though_the_rest_is_stopped(make_agent: MakeAgent) -> None:
    """A restart of the agent on a suspended node was a full outage: nothing came back."""
    agent = make_agent("--on-exit", "auto")
    agent.model_file()
    begin(agent, model("a"), model("b"), a="loaded", b="loaded")
    before = (agent.model("a") or {})["pid"]
    said = xgen_model("suspend", "a", "--by", "kim", "--data-dir", agent.data)
    assert said.returncode == 0, said.stderr
    assert agent.stop() == 0
    assert left(agent) == [str(before)]
    assert "stopped, but for suspended ones, which are left running: a" in agent.log
    assert agent.processes() == [before]

    agent.start()
    agent.wait_up()
    agent.wait_state("a", "loaded")
    agent.wait_state("b", "loaded")
    assert (agent.model("a") or {})["pid"] == before
    agent.stop()
    end_what_is_left(agent)


def test_stop_ends_what_was_left_and_starts_nothing(leaving: Agent) -> None:
    begin(leaving, model("a"), model("b"), a="loaded", b="loaded")
    refused = xgen_model("stop", "--data-dir", leaving.data)
    assert (refused.returncode, "another agent" in refused.stderr) == (1, True)
    assert leaving.stop() == 0
    assert len(leaving.processes()) == 2
    stopped = xgen_model("stop", "--data-dir", leaving.data)
    assert stopped.returncode == 0, stopped.stderr
    assert "stopping what is left" in stopped.stderr
    assert not {each for each in ("agent started", "http://") if each in stopped.stderr}
    assert leaving.processes() == []
    again = xgen_model("stop", "--data-dir", leaving.data)
    assert again.returncode == 0, again.stderr
    nowhere = xgen_model("stop", "--data-dir", leaving.root / "nowhere")
    assert (nowhere.returncode, (leaving.root / "nowhere").exists()) == (1, False)


def test_stop_names_no_node_of_a_folder_whose_agent_never_came_up(leaving: Agent) -> None:
    data = leaving.root / "new"
    listen = ("--listen", "192.0.2.1:8000")  # no address of this machine
    failed = xgen_model(
        *("run", "--node", "gpu-a", "--manifest", leaving.manifests, "--data-dir", data, *listen)
    )
    assert failed.returncode == 1, failed.stderr
    assert "cannot listen" in failed.stderr
    stopped = xgen_model("stop", "--data-dir", data)
    assert stopped.returncode == 0, stopped.stderr
    assert ((data / "version").exists(), (data / "node.json").exists()) == (True, False)
