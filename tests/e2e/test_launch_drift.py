"""A backend that another release of the agent has started otherwise is told, and left as it is."""

import json

import pytest

from tests.cli.command import xgen_model
from tests.e2e.agent import Agent
from tests.e2e.manifests import manifest, model
from tests.e2e.test_adoption import kill, loaded, record_of, start
from tests.waiting import wait_until


@pytest.mark.slow
def test_flags_that_an_upgrade_gives_are_shown_and_restart_nothing(agent: Agent) -> None:
    """R4. By a record such as another release would have written it."""
    agent.write(manifest(model("a", extra_args="{threads: 2}"), model("b")))
    start(agent)
    old = loaded(agent, "a", "b")
    record = record_of(agent, old["a"])
    record_of(agent, old["b"])
    kill(agent)
    told = json.loads(record.read_text(encoding="utf-8"))
    argv = [word for word in told["argv"] if word != "--metrics"]
    told |= {"argv": [*argv, "--of-old", "1"], "launch_hash": "2:0"}
    record.write_text(json.dumps(told), encoding="utf-8")

    agent.environment |= {"LANG": "C.UTF-8", "XGEN_UNRELATED": "1"}
    start(agent)
    assert loaded(agent, "a", "b") == old
    wait_until(lambda: agent.self_view()["engines"] is not None, what="its engines are known")
    drifted = agent.wait_model("a", lambda entry: entry["engine"]["drift"] is not None)

    said = "an earlier agent has started it; started anew it would get --metrics, no --of-old 1"
    assert drifted["engine"]["drift"] == said
    assert (drifted["pid"], drifted["restarts"]) == (old["a"], 0)
    assert said in " ".join(xgen_model("status", "--data-dir", str(agent.data)).stdout.split())
    (drift,) = drifted["drift"]
    assert (drift["kind"], drift["what"]) == ("LaunchDiffers", said)
    assert drift["done"] == "nothing is restarted for it"
    untouched = agent.model("b")
    assert untouched is not None
    assert untouched["engine"]["drift"] is None
