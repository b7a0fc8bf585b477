"""What the next agent is to know of models and of the manifest is kept, whatever is done to it."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.agent import Agent
from tests.e2e.manifests import manifest
from tests.e2e.test_adoption import record_of
from tests.e2e.test_reverts import entry, is_reverted, kill, told_of, up
from tests.waiting import wait_until


def spoil(data: Path) -> None:
    (data / "history/a.json").write_text("{")
    (data / "last-good/last-good.jsonl").write_text("{")


def take_away(data: Path) -> None:
    remove(data / "history")
    remove(data / "last-good")


def remove(folder: Path) -> None:
    """At one blow: the agent may write into it meanwhile."""
    away = folder.with_name("removed")
    folder.rename(away)
    shutil.rmtree(away)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("harm", "said"),
    [(take_away, "was gone"), (spoil, "was changed"), (remove, "was gone")],
)
def test_what_serves_by_its_last_good_spec_does_so_after_a_restart_too(
    agent: Agent, harm: Callable[[Path], None], said: str
) -> None:
    agent.args += ["--models-dir", str(agent.root / "models")]
    up(agent)
    agent.write(manifest(entry("--exit-after 0 --exit-code 3")))
    good = agent.wait_model("a", is_reverted)
    history = agent.data / "history/a.json"
    wait_until(lambda: "code 3" in history.read_text(), what="its history is kept")
    record = record_of(agent, good["pid"])

    harm(agent.data)
    wait_until((agent.data / "agent.json").exists, what="it says again where it answers")
    wait_until(record.exists, what="its record is kept")
    for name in ("history/a.json", "last-good/last-good.jsonl"):
        told = partial(told_of, agent, f"{agent.data / name} {said}")
        wait_until(told, what=f"{name} is told")
    kill(agent)
    agent.manifests.rename(agent.root / "away")
    agent.start()
    agent.wait_up()

    found = agent.wait_model("a", is_reverted)
    assert found["pid"] == good["pid"]
    assert found["spec_hash"] == good["spec_hash"]
    assert "code 3" in found["target"]["reason"]
    assert agent.condition("HistoryKept") is None
