"""An agent dies, its backends live on, and the next one goes on with them (R9)."""

import json
import os
import shutil
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agent import Agent, Entry, is_alive
from tests.e2e.manifests import manifest, model
from tests.e2e.streams import stream_in_flight
from tests.waiting import wait_until

STREAM = '{STAND_IN: "--probe-well --chunks 100000 --chunk-interval 0.05"}'


def kill(agent: Agent) -> None:
    assert agent.process is not None
    agent.process.kill()
    agent.process.wait(10)


def start(agent: Agent, *args: str) -> None:
    agent.start(*args)
    agent.wait_up()


def loaded(agent: Agent, *names: str) -> dict[str, int]:
    return {name: agent.wait_state(name, "loaded")["pid"] for name in names}


def events(agent: Agent, name: str) -> list[Entry]:
    """Of this run of the agent."""
    path = f"/api/management/events?model={name}"
    told: list[Entry] = agent.client.get(f"{agent.url}{path}").json()["events"]
    return told


def kinds(agent: Agent, name: str) -> list[str]:
    return [event["kind"] for event in events(agent, name)]


def record_of(agent: Agent, pid: int) -> Path:
    """Once it says that its backend was loaded."""
    records = (agent.data / "spawns").glob("*.json")
    (record,) = (path for path in records if f'"pid": {pid},' in path.read_text(encoding="utf-8"))
    wait_until(lambda: '"loaded": true' in record.read_text(), what="the load is noted")
    return record


def detail(agent: Agent, name: str) -> dict[str, Any]:
    found: dict[str, Any] = agent.client.get(f"{agent.url}/api/management/models/{name}").json()
    return found


def test_a_killed_agent_costs_its_streams_and_no_model(agent: Agent) -> None:
    """Scenarios 6 and 13: llama-swap#159, #138, nomad#5593, #6980."""
    agent.write(manifest(model("a", env=STREAM, aliases="[gpt]"), model("b", enabled="false")))
    start(agent)
    (pid,) = loaded(agent, "a").values()
    before = detail(agent, "a")
    with stream_in_flight(agent) as lines:
        kill(agent)
    assert lines[-1].startswith("broken: ")
    assert "data: [DONE]" not in lines
    assert is_alive(pid)

    start(agent)
    assert loaded(agent, "a") == {"a": pid}
    # It may be told that it loads, before its first answer.
    told = kinds(agent, "a")
    assert [each for each in told if each != "ModelStateChanged"] == [
        "BackendAdopted",
        "BackendLoaded",
    ]
    assert told[-1] == "ModelStateChanged"
    wait_until(lambda: agent.self_view()["engines"] is not None, what="its engines are known")
    after = detail(agent, "a")
    assert (after["restarts"], after["load_seconds"]) == (0, None)
    assert before["expected_load_seconds"] == round(before["load_seconds"], 3)
    assert after["expected_load_seconds"] == before["expected_load_seconds"]
    for same in ("argv", "port", "backend", "engine", "digest", "spec_hash", "log"):
        assert after[same] == before[same], same
    assert abs(_seconds(after["started_at"]) - _seconds(before["started_at"])) < 1
    answer = agent.post("/v1/chat/completions", {"model": "gpt", "messages": [], "max_tokens": 1})
    assert answer.status_code == 200
    page = agent.client.get(f"{agent.url}/metrics/backends").text
    assert 'model="a"' in page

    os.kill(pid, signal.SIGKILL)
    failed = agent.wait_state("a", "error")
    assert "how, nobody can say: an agent before this one had started it" in failed["reason"]
    agent.post("/api/management/reconcile", {"retry": True}).raise_for_status()
    agent.wait_model("a", lambda now: now["state"] == "loaded" and now["restarts"] == 1)


@pytest.mark.slow
def test_what_serves_is_adopted_while_the_engines_are_still_asked(agent: Agent) -> None:
    """vLLM takes seconds to say its version."""
    agent.write(manifest(model("a"), model("gone")))
    start(agent)
    old = loaded(agent, "a", "gone")
    kill(agent)
    busy = agent.root / "llama-server.busy"
    busy.touch()
    agent.write(manifest(model("a"), model("b")))

    start(agent)
    assert loaded(agent, "a")["a"] == old["a"]
    assert agent.self_view()["engines"] is None
    body = {"model": "a", "messages": []}
    assert agent.post("/v1/chat/completions", body).status_code == 200
    held = agent.wait_state("b", "pending")["reason"]
    assert held.startswith("held back until this node's engines are known: ")
    assert is_alive(old["gone"])

    busy.unlink()
    loaded(agent, "b")
    agent.wait_gone("gone")
    assert not is_alive(old["gone"])
    assert agent.self_view()["engines"][0]["id"] == "llama-server-cpu"
    told = agent.client.get(f"{agent.url}/api/management/events").text
    assert "EngineChanged" not in told


@pytest.mark.slow
def test_what_serves_is_served_though_no_manifest_is_to_be_had(agent: Agent) -> None:
    """R2: the source is away, and what was remembered of it is lost."""
    agent.write(manifest(model("a", aliases="[gpt]")))
    start(agent)
    (pid,) = loaded(agent, "a").values()
    kill(agent)
    away = agent.manifests.rename(agent.root / "away")
    shutil.rmtree(agent.data / "last-good")

    start(agent)
    assert loaded(agent, "a") == {"a": pid}
    answers = {
        name: agent.post("/v1/chat/completions", {"model": name, "messages": []}).status_code
        for name in ("a", "gpt", "other")
    }
    assert answers == {"a": 200, "gpt": 503, "other": 503}

    away.rename(agent.manifests)
    agent.wait_model("a", lambda entry: entry["reason"] == f"serves (pid {pid})")
    body = {"model": "gpt", "messages": []}
    assert agent.post("/v1/chat/completions", body).status_code == 200


@pytest.mark.slow
def test_what_changed_in_the_manifest_meanwhile_is_made_true(agent: Agent) -> None:
    before = [model(name) for name in ("kept", "renamed", "changed", "removed", "disabled")]
    agent.write(manifest(*before))
    start(agent)
    old = loaded(agent, "kept", "renamed", "changed", "removed", "disabled")
    kill(agent)
    agent.write(
        manifest(
            model("kept"),
            model("renamed", aliases="[other]", priority="3"),
            model("changed", env="{LEVEL: high}"),
            model("disabled", enabled="false"),
        )
    )

    start(agent)
    agent.wait_model(
        "changed", lambda now: now["state"] == "loaded" and now["pid"] != old["changed"]
    )
    new = loaded(agent, "kept", "renamed", "changed")
    agent.wait_state("disabled", "disabled")
    agent.wait_gone("removed")

    same = {name for name in new if new[name] == old[name]}
    assert same == {"kept", "renamed"}
    ended = [old[name] for name in ("changed", "removed", "disabled")]
    wait_until(lambda: not any(map(is_alive, ended)), what="the others are stopped")
    assert "removed from the manifest" in str(events(agent, "removed"))
    assert agent.model("kept")["restarts"] == 0  # type: ignore[index]


@pytest.mark.slow
def test_what_died_or_hung_meanwhile_is_started_anew(agent: Agent) -> None:
    """Scenario 1: vllm#55510: its first process is dead, its worker lives."""
    agent.write(
        manifest(
            model("kept"),
            model("lost"),
            model("half", env='{STAND_IN: "--child ignore-term"}'),
            model("hung", timeouts="{ready: 2s}"),
        )
    )
    start(agent)
    old = loaded(agent, "kept", "lost", "half", "hung")
    record_of(agent, old["hung"])
    kill(agent)
    os.kill(old["lost"], signal.SIGKILL)
    os.kill(old["half"], signal.SIGKILL)
    os.kill(old["hung"], signal.SIGSTOP)
    orphans = [pid for pid in agent.processes() if pid not in old.values()]
    assert len(orphans) == 1

    start(agent)
    for name in ("lost", "half", "hung"):
        agent.wait_model(
            name, lambda now: now["state"] == "loaded" and now["pid"] not in old.values()
        )

    assert loaded(agent, "kept") == {"kept": old["kept"]}
    assert not any(map(is_alive, orphans))
    assert not is_alive(old["hung"])
    assert kinds(agent, "lost")[0] == "BackendLost"
    assert f"pid {orphans[0]} was left by an earlier agent" in str(events(agent, "half"))
    assert "it served an earlier agent, and does not serve this one" in str(events(agent, "hung"))
    causes = detail(agent, "hung")["restart_causes"]
    assert causes == {"hung": 1}


@pytest.mark.slow
def test_strangers_and_spoilt_records_are_told_and_left_alone(agent: Agent) -> None:
    """Decoys: with our nonce, with our command line, and with the pid of one that is gone."""
    agent.write(manifest(model("a"), model("b")))
    start(agent)
    old = loaded(agent, "a", "b")
    kept, other = record_of(agent, old["a"]), record_of(agent, old["b"])
    kill(agent)
    os.kill(old["b"], signal.SIGKILL)
    wait_until(lambda: not is_alive(old["b"]), what="b is dead")
    nonce = json.loads(kept.read_text(encoding="utf-8"))["nonce"]
    command = Path(f"/proc/{old['a']}/cmdline").read_text(encoding="utf-8").split("\0")[:-1]
    sleep = [sys.executable, "-c", "import time; time.sleep(300)", *command[1:]]
    decoys = [
        subprocess.Popen(sleep, start_new_session=True, env={**os.environ, **more})
        for more in ({"XGEN_NONCE": nonce}, {}, {})
    ]
    copied, alike, reused = decoys
    _rewrite(other, pid=reused.pid, session=reused.pid)
    torn = other.with_name("torn.json")
    torn.write_text(kept.read_text(encoding="utf-8")[:100], encoding="utf-8")
    boot = other.with_name(f"{'0' * 32}.json")
    boot.write_text(kept.read_text(encoding="utf-8"), encoding="utf-8")
    _rewrite(boot, nonce="0" * 32, boot_id="another", pid=alike.pid, session=alike.pid)
    try:
        start(agent)
        assert loaded(agent, "a", "b")["a"] == old["a"]
        told = agent.wait_condition("ProcessesClear", "False")["message"]
        assert f"process {copied.pid} (" in told
        assert f"cannot read spawn record {torn}" in told
        assert str(alike.pid) not in told
        assert str(reused.pid) not in told
        assert not boot.exists()
        assert "it was started before the last boot" in str(events(agent, "a"))
        assert agent.stop() == 0
        assert [decoy.poll() for decoy in decoys] == [None, None, None]
        assert torn.exists()
    finally:
        for decoy in decoys:
            decoy.kill()
            decoy.wait(10)


def _rewrite(record: Path, **fields: object) -> None:
    content = json.loads(record.read_text(encoding="utf-8"))
    record.write_text(json.dumps(content | fields), encoding="utf-8")


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
