"""Changes without a gap: the new process is there before the old one goes (design §4)."""

import os
import re
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.cli.command import xgen_model
from tests.e2e.agent import Agent, is_alive, llama_server_stand_in
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import REAL_PREFIX, manifest, model, real_model
from tests.model_files import gemma
from tests.observe.gpu_libraries import build, records
from tests.waiting import wait_until

GIB = 2**30
LONG = '{STAND_IN: "--probe-well --chunks 40 --chunk-interval 0.05"}'
NEW = '{STAND_IN: "--probe-well --ready-after 1", LEVEL: "2"}'
CHAT = "/v1/chat/completions"


def asks(name: str, **more: object) -> dict[str, object]:
    return {"model": name, "max_tokens": 1, "messages": [{"role": "user", "content": "x"}], **more}


@dataclass
class Users:
    """Who asks without a pause; the status of each answer."""

    agent: Agent
    body: dict[str, object]
    answers: list[int] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)

    def ask(self) -> None:
        with httpx.Client(timeout=60, trust_env=False) as client:
            while not self._over.is_set():
                response = client.post(f"{self.agent.url}{CHAT}", json=self.body)
                self.answers.append(response.status_code)

    @contextmanager
    def asking(self) -> Iterator[None]:
        threads = [threading.Thread(target=self.ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            wait_until(lambda: len(self.answers) >= 4, what="first answers")
            yield
            enough = len(self.answers) + 4
            wait_until(lambda: len(self.answers) >= enough, what="more answers")
        finally:
            self._over.set()
            for thread in threads:
                thread.join()


def test_a_change_under_load_fails_no_request_and_cuts_no_answer(agent: Agent) -> None:
    """Scenario 8, and R5: the old process ends once its last answer has."""
    agent.write(manifest(model("a", env=LONG)))
    agent.start()
    agent.wait_up()
    old = agent.wait_state("a", "loaded")["pid"]
    users = Users(agent, asks("a"))

    with (
        users.asking(),
        agent.client.stream(
            "POST", f"{agent.url}{CHAT}", json=asks("a", stream=True, max_tokens=99)
        ) as answer,
    ):
        text = answer.iter_text()
        read = next(text)
        agent.write(manifest(model("a", env=NEW)))
        coming = agent.wait_model("a", lambda entry: entry["target"] is not None)
        assert (coming["state"], coming["pid"]) == ("loaded", old)
        now = agent.wait_model("a", lambda entry: entry["pid"] != old)
        assert (now["state"], now["target"]) == ("loaded", None)
        read += "".join(text)

    assert read.endswith("data: [DONE]\n\n")
    assert set(users.answers) == {200}
    wait_until(lambda: not is_alive(old), what="the end of the old process")
    after = agent.wait_model("a", lambda entry: entry["reason"] == f"serves (pid {now['pid']})")
    assert (after["restarts"], after["draining"]) == (1, [])
    page = agent.client.get(f"{agent.url}/metrics").text
    assert 'xgen_model_restarts_total{model="a",reason="changed"} 1' in page


@pytest.mark.slow
def test_who_drains_is_seen_and_since_when_and_with_how_many_requests(agent: Agent) -> None:
    agent.write(
        manifest(model("a", env='{STAND_IN: "--probe-well --chunks 600 --chunk-interval 0.1"}'))
    )
    agent.start()
    agent.wait_up()
    before = agent.wait_state("a", "loaded")
    long = asks("a", stream=True, max_tokens=600)
    with agent.client.stream("POST", f"{agent.url}{CHAT}", json=long) as answer:
        text = answer.iter_text()
        next(text)
        agent.write(manifest(model("a", env='{STAND_IN: "--ready-after 3"}')))
        coming = agent.wait_model("a", lambda entry: (entry["target"] or {}).get("pid") is not None)
        assert coming["target"]["pid"] not in (None, before["pid"])
        assert coming["draining"] == []
        now = agent.wait_model("a", lambda entry: bool(entry["draining"]))
        assert now["pid"] == coming["target"]["pid"]
        (drains,) = now["draining"]
        assert (drains["pid"], drains["spec_hash"]) == (before["pid"], before["spec_hash"])
        assert (drains["in_flight"], now["in_flight"]) == (1, 1)
        assert drains["since"] is not None
        assert f"pid {now['pid']} serves in its place" in drains["reason"]
        plan = agent.client.get(f"{agent.url}/api/management/plan").json()
        assert [each["pid"] for each in plan["models"][0]["draining"]] == [before["pid"]]
        under_way = [(each["kind"], each["pid"]) for each in plan["under_way"]]
        assert under_way == [("stop", before["pid"])]
        shown = xgen_model("status", "--data-dir", agent.data).stdout
        assert f"pid {before['pid']} drains since" in " ".join(shown.split())
    agent.wait_model("a", lambda entry: entry["draining"] == [])
    assert not is_alive(before["pid"])


@pytest.mark.slow
def test_what_never_gets_ready_costs_nothing_and_the_next_good_one_comes(agent: Agent) -> None:
    """R7: a failure before the old process was stopped."""
    agent.write(manifest(model("a")))
    agent.start()
    agent.wait_up()
    old = agent.wait_state("a", "loaded")["pid"]
    hangs = '{STAND_IN: "--hang-on-load --log-megabytes 0"}'
    agent.write(manifest(model("a", env=hangs, timeouts="{ready: 1s, stop: 1s}")))

    stopped = agent.wait_model("a", lambda entry: bool(entry["draining"]))
    failed = agent.wait_model(
        "a", lambda entry: entry["target"] is not None and entry["target"]["state"] == "error"
    )

    assert (failed["state"], failed["pid"]) == ("loaded", old)
    for told in (stopped["draining"][0], stopped["target"], failed["target"]):
        assert "not ready within 1s: health: port " in told["reason"]
    assert failed["restarts"] == 0
    page = agent.client.get(f"{agent.url}/metrics").text
    counts = re.findall(r"^xgen_model_restarts_total\{.*\} (.*)$", page, re.MULTILINE)
    assert set(counts) == {"0.0"}
    assert agent.post(CHAT, asks("a")).status_code == 200
    agent.write(manifest(model("a", env=NEW)))
    now = agent.wait_model("a", lambda entry: entry["target"] is None and entry["pid"] != old)
    assert now["state"] == "loaded"
    wait_until(lambda: agent.processes() == [now["pid"]], what="nobody else")


@pytest.mark.slow
@pytest.mark.parametrize("adopted", [False, True], ids=["own", "adopted"])
def test_a_new_one_that_dies_while_the_old_one_drains_costs_nothing(
    agent: Agent, adopted: bool
) -> None:
    """R7: until the old process is stopped, what serves goes on; and the change is tried again."""
    endless = '{STAND_IN: "--probe-well --chunks 100000 --chunk-interval 0.05"}'
    agent.write(manifest(model("a", env=endless, timeouts="{drain: 10m}")))
    agent.start()
    agent.wait_up()
    old = agent.wait_state("a", "loaded")["pid"]
    if adopted:
        assert agent.process is not None
        agent.process.kill()
        agent.process.wait(10)
        agent.start()
        agent.wait_up()
        assert agent.wait_state("a", "loaded")["pid"] == old
    long = asks("a", stream=True, max_tokens=99)
    with agent.client.stream("POST", f"{agent.url}{CHAT}", json=long) as answer:
        text = answer.iter_text()
        next(text)
        agent.write(manifest(model("a", env=NEW, timeouts="{drain: 10m}")))
        new = agent.wait_model("a", lambda entry: bool(entry["draining"]))["pid"]
        assert new != old

        os.kill(new, signal.SIGKILL)

        back = agent.wait_model("a", lambda entry: entry["pid"] == old)
        assert back["state"] == "loaded"
        assert old not in [each["pid"] for each in back["draining"]]
        failed = agent.wait_model("a", lambda entry: entry["target"]["state"] == "error")
        assert (failed["state"], failed["pid"]) == ("loaded", old)
        assert "killed by SIGKILL" in failed["target"]["reason"]
        assert agent.post(CHAT, asks("a")).status_code == 200
        next(text)
        again = agent.wait_model("a", lambda entry: bool(entry["draining"]))
        assert again["pid"] not in (old, new)
        assert [each["pid"] for each in again["draining"]] == [old]
        next(text)
    wait_until(lambda: agent.processes() == [again["pid"]], what="the end of the old process")
    page = agent.client.get(f"{agent.url}/api/management/events?limit=1000").json()
    kept = [each for each in page["events"] if each["data"].get("action") == "KeepBackend"]
    assert [each["data"]["pid"] for each in kept] == [old]


@pytest.mark.slow
def test_one_that_drains_and_is_not_wanted_any_more_is_not_kept(agent: Agent) -> None:
    endless = '{STAND_IN: "--probe-well --chunks 100000 --chunk-interval 0.05"}'
    agent.write(manifest(model("a", env=endless, timeouts="{drain: 10m}")))
    agent.start()
    agent.wait_up()
    agent.wait_state("a", "loaded")
    long = asks("a", stream=True, max_tokens=99)
    with agent.client.stream("POST", f"{agent.url}{CHAT}", json=long) as answer:
        text = answer.iter_text()
        next(text)
        agent.write(manifest(model("a", env=NEW, timeouts="{drain: 10m}")))
        new = agent.wait_model("a", lambda entry: bool(entry["draining"]))["pid"]
        agent.write(manifest(model("a", env=NEW, enabled="false")))
        agent.wait_model("a", lambda entry: "enabled: false" in entry["reason"])
        os.kill(new, signal.SIGKILL)
        gone = agent.wait_model("a", lambda entry: entry["pid"] != new)
        assert gone["state"] == "unloading"
        next(text)
    agent.wait_state("a", "disabled")
    assert agent.processes() == []


@pytest.mark.slow
def test_a_change_of_mind_ends_the_new_process_and_leaves_the_old_one(agent: Agent) -> None:
    agent.write(manifest(model("a")))
    agent.start()
    agent.wait_up()
    old = agent.wait_state("a", "loaded")["pid"]
    agent.write(manifest(model("a", env='{STAND_IN: "--ready-after 600"}')))
    wait_until(lambda: len(agent.processes()) == 2, what="the new process")

    agent.write(manifest(model("a", strategy="surge")))

    wait_until(lambda: agent.processes() == [old], what="the old process alone")
    assert agent.wait_model("a", lambda entry: entry["target"] is None)["restarts"] == 0


def test_recreate_stops_the_old_process_first(agent: Agent) -> None:
    agent.write(manifest(model("a", strategy="recreate")))
    agent.start()
    agent.wait_up()
    old = agent.wait_state("a", "loaded")["pid"]

    agent.write(manifest(model("a", env='{STAND_IN: "--ready-after 600"}', strategy="recreate")))

    agent.wait_state("a", "loading")
    assert not is_alive(old)


@pytest.mark.slow
def test_counted_gpus_surge_onto_others_and_with_none_free_in_their_place(
    make_agent: MakeAgent, tmp_path: Path
) -> None:
    agent = make_agent()
    agent.model_file()
    llama_server_stand_in(agent.root, "  CUDA0: NVIDIA H100 80GB HBM3 (81079 MiB, 80456 MiB free)")
    cards: list[dict[str, object]] = [
        {"uuid": f"GPU-{at}", "pci": f"0000:0{at}:00.0", "total": 80 * GIB, "used": GIB}
        for at in range(3)
    ]
    libraries = build(tmp_path)
    agent.environment |= libraries.machine(agent.root, nvidia=records("gpu", *cards))
    one, two = ({"backend": "auto", "gpus": "1"}, {"backend": "auto", "gpus": "2"})
    agent.write(manifest(model("a", **one)))
    agent.start()
    agent.wait_up()
    first = agent.wait_state("a", "loaded")
    users = Users(agent, asks("a"))

    with users.asking():
        agent.write(manifest(model("a", env=NEW, **one)))
        then = agent.wait_model("a", lambda entry: entry["pid"] not in (None, first["pid"]))

    assert set(users.answers) == {200}
    assert (first["gpu_ids"], then["gpu_ids"]) == (["GPU-0"], ["GPU-1"])
    agent.write(manifest(model("a", env=NEW, **one), model("b", **two)))
    pair = agent.wait_state("b", "loaded")
    assert pair["gpu_ids"] == ["GPU-0", "GPU-2"]
    agent.write(manifest(model("a", **one), model("b", **two)))
    last = agent.wait_model("a", lambda entry: entry["pid"] not in (None, then["pid"]))
    assert last["gpu_ids"] == ["GPU-1"]
    assert agent.wait_state("b", "loaded")["pid"] == pair["pid"]


@pytest.mark.engine
def test_a_real_model_changes_under_load_without_a_gap(make_agent: MakeAgent) -> None:
    agent = make_agent(real=True)
    path = agent.hub / REAL_PREFIX / "model.gguf"
    path.parent.mkdir(parents=True)
    shutil.copyfile(gemma(), path)
    agent.write(manifest(real_model("a", "ctx_size: 512")))
    agent.start()
    agent.wait_up()
    old = agent.wait_state("a", "loaded", seconds=300)["pid"]
    users = Users(agent, asks("a"))

    with users.asking():
        agent.write(manifest(real_model("a", "ctx_size: 1024")))
        now = agent.wait_model("a", lambda entry: entry["pid"] not in (None, old), seconds=300)

    assert now["state"] == "loaded"
    assert set(users.answers) == {200}


@pytest.mark.slow
def test_a_change_in_whose_middle_all_is_suspended_ends_with_one_process(agent: Agent) -> None:
    agent.write(manifest(model("a")))
    agent.start()
    agent.wait_up()
    old = agent.wait_state("a", "loaded")["pid"]
    gate = agent.root / "may-load"
    agent.write(manifest(model("a", env=f'{{STAND_IN: "--ready-when {gate}"}}')))
    coming = agent.wait_model("a", lambda entry: (entry["target"] or {}).get("pid") is not None)
    said = xgen_model("suspend", "--by", "kim", "--data-dir", agent.data)
    assert said.returncode == 0, said.stderr
    gate.touch()

    now = agent.wait_model("a", lambda entry: entry["pid"] != old and not entry["draining"])

    assert (now["pid"], now["state"], now["target"]) == (coming["target"]["pid"], "loaded", None)
    assert agent.processes() == [now["pid"]]
    assert agent.stop() == 0
