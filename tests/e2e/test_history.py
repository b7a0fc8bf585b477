"""What came of each revision, asked as an operator asks, over a restart of the agent."""

import json

import pytest

from tests.cli.command import xgen_model
from tests.e2e.agent import Agent, Entry
from tests.e2e.manifests import manifest, model
from tests.e2e.test_adoption import kill, start
from tests.waiting import wait_until


def revisions(agent: Agent) -> list[Entry]:
    asked = ("status", "--history", "--output", "json", "--data-dir", str(agent.data))
    told: list[Entry] = json.loads(xgen_model(*asked).stdout)["revisions"]
    return told


def wait_outcomes(agent: Agent, *outcomes: str) -> list[Entry]:
    """The newest first."""
    wait_until(
        lambda: [each["outcome"] for each in revisions(agent)] == list(outcomes),
        what=f"the history is {outcomes}",
    )
    return revisions(agent)


@pytest.mark.slow
def test_the_history_of_revisions_outlives_the_agent(agent: Agent) -> None:
    agent.write(manifest(model("a")))
    start(agent)
    wait_outcomes(agent, "applied")
    agent.write(manifest(model("a", extra_args="{no_such_flag: 1}"), model("b")))
    failed = wait_outcomes(agent, "failed", "applied")[0]
    assert [each["model"] for each in failed["models"]] == ["a"]
    agent.write(manifest(model("a")) + "    - {name: x}\n")
    wait_outcomes(agent, "refused", "failed", "applied")
    before = revisions(agent)

    kill(agent)
    start(agent)
    assert revisions(agent) == before
    ready = agent.wait_condition("Ready", "False")
    assert (ready["reason"], ready["observed_revision"]) == ("Invalid", before[0]["revision"])
    shown = xgen_model("status", "--history", "--data-dir", str(agent.data)).stdout
    assert "spec.models[1].source: is missing" in shown
    agent.write(manifest(model("a")))
    wait_outcomes(agent, "applied", "refused", "failed", "applied")
