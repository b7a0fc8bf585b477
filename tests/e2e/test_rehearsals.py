"""What an agent says that it would do, against what it then does."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.command import xgen_model
from tests.e2e.agent import Agent, Entry
from tests.e2e.conftest import MakeAgent
from tests.e2e.gpu_machine import GIB, PREFIX, Machine, card
from tests.e2e.manifests import manifest, model
from tests.observe.gpu_libraries import GpuLibraries
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
PLAN = "/api/management/plan"


def on_one_gpu(name: str, context: int, **fields: str) -> str:
    asks = {"gpus": "1", "extra_args": f"{{ctx_size: {context}}}", **fields}
    return model(name, source=fields.pop("source", PREFIX), backend="auto", **asks)


@pytest.fixture
def running(make_agent: MakeAgent, libraries: GpuLibraries) -> Agent:
    """Four GPUs, one of which is taken."""
    agent = make_agent()
    machine = Machine(agent, libraries)
    cards = [
        card(uuid=f"GPU-{number}", pci=f"0000:0{number}:00.0", used=GIB) for number in range(4)
    ]
    machine.tells(*cards, processes=[])
    agent.model_file("gguf/org_new")
    machine.runs(on_one_gpu("changes", 2048), model("goes", source=PREFIX, gpus="0"))
    for name in ("changes", "goes"):
        agent.wait_state(name, "loaded")
    return agent


def get(agent: Agent, path: str) -> Any:
    return agent.client.get(f"{agent.url}{path}").raise_for_status().json()


def begun(agent: Agent) -> list[Entry]:
    events = get(agent, "/api/management/events")["events"]
    return [each for each in events if each["kind"] == "ActionBegun"]


def everything(agent: Agent) -> dict[str, Any]:
    """All that a question may not change."""
    folders = (agent.root / "data" / "models", agent.data / "history", agent.data / "last-good")
    plan = get(agent, PLAN)
    return {
        "models": get(agent, "/api/management/models")["models"],
        "conditions": get(agent, "/api/cluster/_self")["conditions"],
        "plan": (plan["actions"], plan["under_way"], plan["models"], plan["waits"]),
        "events": get(agent, "/api/management/events")["events"],
        "files": [file for folder in folders for file in files_below(folder)],
    }


def files_below(folder: Path) -> list[tuple[str, int]]:
    files = (each for each in folder.rglob("*") if each.is_file() and each.suffix != ".lock")
    return sorted((str(each), each.stat().st_mtime_ns) for each in files)


def test_what_is_rehearsed_is_what_the_agent_then_does(running: Agent, tmp_path: Path) -> None:
    pids = {each["pid"] for each in get(running, "/api/management/models")["models"]}
    text = manifest(
        on_one_gpu("changes", 4096),
        model("new", source="gguf/org_new", backend="auto", gpus="1"),
        model("off", enabled="false"),
    )
    file = tmp_path / "candidate.yaml"
    file.write_text(text, encoding="utf-8")
    before, already = everything(running), len(begun(running))

    answer = xgen_model("plan", "--manifest", file, "--server", running.url, "--output", "json")
    assert answer.returncode == 2, answer.stderr
    (told,) = json.loads(answer.stdout)["nodes"]
    assert everything(running) == before

    running.write(text)
    running.wait_gone("goes")
    running.wait_state("new", "loaded")
    running.wait_model("changes", lambda now: now["pid"] not in pids and not now["draining"])
    wait_until(lambda: get(running, PLAN)["under_way"] == [], what="rest")
    done = begun(running)[already:]

    assert per_model(told["order"]) == {
        "changes": ["StartBackend", "StopBackend"],
        "goes": ["StopBackend"],
        "new": ["FetchFiles", "StartBackend"],
    }
    assert reasons(told["order"], pids) == reasons([each | each["data"] for each in done], pids)
    models = {each["name"]: each for each in get(running, "/api/management/models")["models"]}
    given = {each["model"]: each["gpus"] for each in told["order"] if each["gpus"]}
    assert given == {name: models[name]["gpu_ids"] for name in ("changes", "new")}
    assert xgen_model("plan", "--manifest", file, "--server", running.url).returncode == 0
    assert running.stop() == 0


def per_model(order: list[Entry]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for each in order:
        found.setdefault(each["model"], []).append(each["action"])
    return found


def reasons(order: list[Entry], old_pids: set[int]) -> dict[str, list[tuple[str, str]]]:
    """Of each model, in their order; who is new has no pid before."""

    def said(match: re.Match[str]) -> str:
        return match[0] if int(match[1]) in old_pids else "the new process"

    found: dict[str, list[tuple[str, str]]] = {}
    for each in order:
        reason = re.sub(r"\bpid (\d+)\b", said, each["reason"])
        found.setdefault(each["model"], []).append((each["action"], reason))
    return found


def test_what_cannot_be_taken_is_told_with_every_place(running: Agent) -> None:
    broken = {"name": "a.yaml", "content": manifest(model("x", typo="1"), model("x"))}

    answer = httpx.post(f"{running.url}{PLAN}", json={"files": [broken]}, trust_env=False)

    assert answer.status_code == 422
    told = [(each["file"], each["line"]) for each in answer.json()["problems"] if each["file"]]
    assert told == [("a.yaml", 6), ("a.yaml", 7)]
    assert "a.yaml:6:" in answer.json()["error"]["message"]
    assert running.stop() == 0
