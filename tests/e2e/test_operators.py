"""What operators see of a real agent: events, metrics, logs, and the commands they give."""

import json
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.cli.command import xgen_model
from tests.e2e.agent import Agent, Entry
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import manifest, model
from tests.waiting import wait_for, wait_until


def get(agent: Agent, path: str) -> httpx.Response:
    answer = httpx.get(f"{agent.url}{path}", trust_env=False, timeout=20)
    answer.raise_for_status()
    return answer


def events(agent: Agent, query: str = "") -> list[Entry]:
    found: list[Entry] = get(agent, f"/api/management/events{query}").json()["events"]
    return found


def series(agent: Agent, path: str = "/metrics") -> list[tuple[str, dict[str, str], float]]:
    families = text_string_to_metric_families(get(agent, path).text)
    return [(s.name, s.labels, s.value) for family in families for s in family.samples]


def of_model(agent: Agent, name: str) -> list[tuple[str, dict[str, str], float]]:
    return [each for each in series(agent) if each[1].get("model") == name]


class Following:
    """The lines of a stream, read in a thread as they come."""

    def __init__(self, url: str) -> None:
        self.lines: list[str] = []
        self.ended = threading.Event()
        self._client = httpx.Client(trust_env=False, timeout=None)
        self._answer = self._client.send(self._client.build_request("GET", url), stream=True)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        try:
            for line in self._answer.iter_lines():
                self.lines.append(line)
        except httpx.HTTPError:
            pass
        finally:
            self.ended.set()

    def wait(self, text: str) -> None:
        wait_until(
            lambda: any(text in line for line in self.lines),
            what=f"{text!r} in {self.lines[-5:]}",
        )

    def leave(self) -> None:
        stream = self._answer.extensions["network_stream"]
        stream.get_extra_info("socket").shutdown(2)
        self._thread.join(20)
        self._answer.close()
        self._client.close()


@contextmanager
def following(agent: Agent, path: str) -> Iterator[Following]:
    stream = Following(f"{agent.url}{path}")
    try:
        yield stream
    finally:
        stream.leave()


def sockets(agent: Agent) -> int:
    assert agent.process is not None
    folder = Path(f"/proc/{agent.process.pid}/fd")
    return sum(os.readlink(fd).startswith("socket:") for fd in folder.iterdir() if fd.is_symlink())


def test_events_tell_the_story_of_a_crash_in_order(agent: Agent) -> None:
    agent.write(manifest(model("a"), model("b")))
    agent.start()
    agent.wait_up()
    victim = agent.wait_state("a", "loaded")["pid"]
    agent.wait_state("b", "loaded")
    before = events(agent)[-1]["seq"]
    os.kill(victim, signal.SIGKILL)
    agent.wait_model("a", lambda entry: entry["state"] == "loaded" and entry["pid"] != victim)
    told = [
        (event["kind"], event["data"].get("state", ""))
        for event in events(agent, f"?since={before}&model=a")
    ]
    # It may be seen to have died a moment before all of it has ended.
    assert [each for each in told if each != ("ModelStateChanged", "unloading")] == [
        ("BackendExited", ""),
        ("DriftFound", ""),
        ("ModelStateChanged", "error"),
        ("ActionBegun", ""),
        ("ModelStateChanged", "loading"),
        ("BackendStarted", ""),
        ("BackendLoaded", ""),
        ("DriftEnded", ""),
        ("ModelStateChanged", "loaded"),
    ]
    assert events(agent, f"?since={before}&model=b") == []
    exited = next(
        event
        for event in events(agent, f"?since={before}&model=a")
        if event["kind"] == "BackendExited"
    )
    assert (exited["data"]["signal"], exited["level"]) == ("SIGKILL", "warning")
    assert "SIGKILL" in exited["reason"]


def test_a_bad_manifest_is_one_event_with_its_places(agent: Agent) -> None:
    agent.write(manifest(model("a")))
    agent.start()
    agent.wait_up()
    agent.wait_state("a", "loaded")
    agent.write(manifest(model("a", extra_argz="{}")))
    agent.wait_condition("ManifestValid", "False")
    refused = [event for event in events(agent) if event["kind"] == "ManifestRefused"]
    assert len(refused) == 1
    assert "models.yaml:6:" in refused[0]["reason"]


def test_reconcile_with_retry_lifts_a_block(agent: Agent) -> None:
    """R7: what failed for good waits for a change, or for an operator."""
    agent.write(manifest(model("other", enabled="false")))
    agent.start()
    agent.wait_up()
    agent.wait_state("other", "disabled")
    engine = agent.root / "llama-server"
    engine.chmod(0o600)
    agent.write(manifest(model("a", aliases="[gpt]")))
    agent.wait_state("a", "blocked")
    engine.chmod(0o700)
    assert agent.post("/api/management/reconcile", {}).json()["retried"] == []
    assert agent.model("a")["state"] == "blocked"  # type: ignore[index]
    answer = agent.post("/api/management/reconcile", {"retry": True, "model": "gpt"})
    assert answer.json()["retried"] == ["a"]
    agent.wait_state("a", "loaded")
    kinds = [event["kind"] for event in events(agent, "?model=a")]
    assert kinds.index("CommandReceived") < kinds.index("FailureForgiven")


def test_reconcile_reads_the_source_at_once(make_agent: MakeAgent) -> None:
    agent = make_agent("--poll-interval", "3600")
    agent.model_file()
    agent.write(manifest(model("a")))
    agent.start()
    agent.wait_up()
    agent.wait_state("a", "loaded")
    # A change inside the file that a linked folder's watch does not tell: the link's target is
    # outside of what is watched.
    aside = agent.root / "aside.yaml"
    aside.write_text(manifest(model("a"), model("b", enabled="false")))
    (agent.manifests / "models.yaml").unlink()
    (agent.manifests / "models.yaml").symlink_to(aside)
    agent.post("/api/management/reconcile", {})
    agent.wait_state("b", "disabled")


@pytest.mark.slow
def test_nothing_of_a_removed_model_is_left_in_the_metrics(agent: Agent) -> None:
    agent.write(manifest(model("a"), model("b")))
    agent.start()
    agent.wait_up()
    for name in ("a", "b"):
        agent.wait_state(name, "loaded")
        agent.post("/v1/chat/completions", {"model": name, "messages": []})
    names = {name for name, _, _ in of_model(agent, "a")}
    assert {"xgen_requests_total", "xgen_model_state", "xgen_model_load_seconds"} <= names
    assert {labels["model"] for _, labels, _ in series(agent, "/metrics/backends")} == {"a", "b"}
    agent.write(manifest(model("b")))
    agent.wait_gone("a")
    assert of_model(agent, "a") == []
    assert {labels["model"] for _, labels, _ in series(agent, "/metrics/backends")} == {"b"}
    assert of_model(agent, "b") != []


def test_tokens_are_counted_over_a_restart(agent: Agent) -> None:
    """What a backend did until it was stopped counts, the agent's own first question included."""
    agent.write(manifest(model("a")))
    agent.start()
    agent.wait_up()
    before = agent.wait_state("a", "loaded")
    agent.post("/v1/chat/completions", {"model": "a", "messages": []})
    agent.write(manifest(model("a", env="{OTHER: value}")))

    def changed(entry: Entry) -> bool:
        return bool(entry["state"] == "loaded" and entry["pid"] != before["pid"])

    agent.wait_model("a", changed)
    tokens = {labels["kind"]: n for name, labels, n in of_model(agent, "a") if "tokens" in name}
    assert tokens["prompt"] in (2, 3)
    assert tokens["generated"] == 3 * tokens["prompt"]


def test_the_loop_and_the_hub_are_measured(agent: Agent) -> None:
    agent.write(manifest(model("a")))
    agent.start()
    agent.wait_up()
    agent.wait_state("a", "loaded")
    values = {(name, *sorted(labels.items())): value for name, labels, value in series(agent)}
    assert values["xgen_reconcile_total", ("result", "changed")] >= 2
    assert values["xgen_reconcile_total", ("result", "failed")] == 0
    assert values["xgen_reconcile_duration_seconds_count",] > 0
    assert values["xgen_last_success_timestamp_seconds",] > 1.7e9
    size = (agent.hub / "gguf/test_model/model.gguf").stat().st_size
    assert values["xgen_hub_transfer_bytes_total", ("direction", "pull")] == size
    assert values["xgen_hub_transfer_seconds_count",] == 1
    assert values["xgen_cache_bytes",] > 0
    applied = agent.self_view()["revision"]["applied"]
    assert values["xgen_manifest_info", ("revision", applied), ("state", "applied")] == 1


@pytest.mark.slow
def test_a_log_is_followed_over_a_rotation_until_the_client_leaves(make_agent: MakeAgent) -> None:
    agent = make_agent("--log-max-mib", "1")
    agent.model_file()
    agent.write(manifest(model("a", env='{STAND_IN: "--log-megabytes 2"}')))
    agent.start()
    agent.wait_up()
    victim = agent.wait_state("a", "loaded")["pid"]
    open_before = sockets(agent)
    logs = agent.data / "logs"
    with following(agent, "/api/management/models/a/logs?follow=true&lines=1") as log:
        wait_until(lambda: any(logs.glob("a@*.log.1")), what="a rotation")
        os.kill(victim, signal.SIGKILL)
        log.wait("] a runs as pid ")
    wait_until(lambda: sockets(agent) <= open_before, what="the agent noticed that we left")


@pytest.mark.slow
def test_of_logs_that_were_removed_it_is_told_where_they_would_be(agent: Agent) -> None:
    dies = model("b", env='{STAND_IN: "--exit-after 0"}', on_failure="stop")
    agent.write(manifest(model("a"), dies, model("c", enabled="false")))
    agent.start()
    agent.wait_up()
    a = agent.wait_state("a", "loaded")
    agent.wait_state("b", "blocked")
    for file in (agent.data / "logs").iterdir():
        file.unlink()

    told = {
        name: xgen_model("logs", name, "--data-dir", agent.data).stderr for name in ("a", "b", "c")
    }

    assert f"somebody removed or emptied {a['log']}, where its process, pid {a['pid']}" in told["a"]
    assert "listening on" in Path(f"/proc/{a['pid']}/fd/1").read_text(encoding="utf-8")
    assert "somebody removed the logs of its starts" in " ".join(told["b"].split())
    assert told["c"] == "c has not started yet: no log\n"


def test_followers_end_with_the_agent_and_hear_of_it(agent: Agent) -> None:
    agent.write(manifest(model("a")))
    agent.start()
    agent.wait_up()
    agent.wait_state("a", "loaded")
    with (
        following(agent, "/api/management/events?follow=true") as told,
        following(agent, "/api/management/models/a/logs?follow=true") as log,
    ):
        assert agent.stop() == 0
        assert told.ended.wait(20)
        assert log.ended.wait(20)
    kinds = [json.loads(line[6:])["kind"] for line in told.lines if line.startswith("data: ")]
    assert kinds[0] == "AgentStarted"
    assert "AgentEnding" in kinds


@pytest.mark.slow
def test_no_key_of_a_backend_shows_anywhere(agent: Agent) -> None:
    """Scenario 78, litellm#24530, in part: whoever reads a page without a key finds none in it."""
    agent.write(manifest(model("a", env='{HF_TOKEN: {from_env: HUB_TOKEN}, LEVEL: "1"}')))
    agent.environment["HUB_TOKEN"] = "hub-secret-42"
    agent.start()
    agent.wait_up()
    agent.wait_state("a", "loaded")

    def key() -> str | None:
        records = [json.loads(path.read_bytes()) for path in agent.data.glob("spawns/*")]
        return next((str(record["api_key"]) for record in records), None)

    secrets = (wait_for(key, what="the spawn's record"), "hub-secret-42")
    paths = ("models", "models/a", "models/a/logs", "plan", "events")
    pages = [get(agent, f"/api/management/{path}").text for path in paths]
    pages += [get(agent, path).text for path in ("/cluster", "/metrics", "/metrics/backends")]
    pages.append(agent.log)
    assert not any(secret in page for secret in secrets for page in pages)
    shown: Any = get(agent, "/api/management/models/a").json()
    assert shown["spec"]["env"]["HF_TOKEN"] == {"from_env": "HUB_TOKEN"}
    assert shown["argv"][0].endswith("llama-server")


def test_every_line_of_the_agents_log_is_one_json_object(agent: Agent) -> None:
    agent.write("apiVersion: [\n")
    agent.start()
    agent.wait_up()
    agent.wait_condition("ManifestValid", "False")
    agent.write(manifest(model("a", env='{STAND_IN: "--crash-after-requests 2"}')))
    agent.wait_state("a", "loaded")
    agent.post("/v1/completions", {"model": "a", "prompt": "x"}, **{"X-Request-Id": "mine"})
    agent.wait_state("a", "error")
    assert agent.stop() == 0
    lines = [json.loads(line) for line in agent.log.splitlines()]
    assert {line["node"] for line in lines} == {"node-a"}
    about = [line for line in lines if line.get("model") == "a"]
    assert all(line["revision"] for line in about if "request_id" not in line)
    assert [line["model"] for line in lines if line.get("request_id") == "mine"] == ["a"]
