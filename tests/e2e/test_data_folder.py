"""What becomes of a running agent whose data folder somebody empties, or takes away."""

import shutil
from functools import partial
from pathlib import Path

import pytest

from tests.cli.command import xgen_model
from tests.e2e.agent import Agent
from tests.e2e.manifests import manifest, model
from tests.e2e.test_adoption import kill, kinds, loaded, record_of, start
from tests.waiting import wait_until


@pytest.mark.slow
def test_an_emptied_data_folder_costs_nothing(agent: Agent) -> None:
    """The next agent knows the processes of this one all the same."""
    agent.write(manifest(model("a"), model("b", env='{STAND_IN: "--child plain"}')))
    start(agent)
    old = loaded(agent, "a", "b")
    records = [record_of(agent, pid) for pid in old.values()]

    remove(agent.data)
    wait_until((agent.data / "agent.json").exists, what="it says again where it answers")
    for name in old:
        wait_until(partial(is_rewritten, agent, name), what="it is told")

    assert loaded(agent, "a", "b") == old
    assert all(record.exists() for record in records)
    assert "2 of 2" in xgen_model("doctor", "--data-dir", str(agent.data)).stdout
    kill(agent)
    start(agent)
    assert loaded(agent, "a", "b") == old
    assert kinds(agent, "a")[0] == "BackendAdopted"


@pytest.mark.slow
def test_another_nodes_folder_in_its_place_is_left_alone(agent: Agent) -> None:
    agent.write(manifest(model("a")))
    start(agent)
    old = loaded(agent, "a")
    record = record_of(agent, old["a"])
    away = agent.data.with_name("away")
    agent.data.rename(away)
    agent.data.mkdir()
    (agent.data / "node.json").write_text('{"node": "another"}')
    shutil.copy(away / "agent.json", agent.data)

    told = agent.wait_condition("HistoryKept", "False")["message"]
    assert f"data folder {agent.data} was replaced: what is there belongs to node another" in told
    agent.write(manifest(model("a"), model("b")))
    waiting = agent.wait_state("b", "error")["reason"]
    assert f"data folder {agent.data} was replaced" in waiting
    assert loaded(agent, "a") == old
    assert not (agent.data / "spawns").exists()

    remove(agent.data)
    away.rename(agent.data)
    agent.post("/api/management/reconcile", {"retry": True}).raise_for_status()
    loaded(agent, "b")
    wait_until(lambda: agent.condition("HistoryKept") is None, what="it is taken back")
    assert record.exists()
    assert loaded(agent, "a") == old


def remove(folder: Path) -> None:
    """While somebody writes there, whose new files come and go."""
    while folder.exists():
        shutil.rmtree(folder, ignore_errors=True)


def is_rewritten(agent: Agent, name: str) -> bool:
    return "RecordRewritten" in kinds(agent, name)
