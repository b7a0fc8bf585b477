"""A plan that asks nobody, against the agent whose node it is about."""

from pathlib import Path

import pytest

from tests.cli.command import xgen_model
from tests.cli.plan_answers import plan_of
from tests.e2e.agent import Agent
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import model
from tests.e2e.test_commands import candidate, up


@pytest.fixture(scope="module")
def untouched(make_lasting_agent: MakeAgent) -> Agent:
    agent = make_lasting_agent()
    agent.model_file()
    return up(agent)


def test_a_fleet_file_is_what_the_agent_tells_and_plans_without_it(
    untouched: Agent, tmp_path: Path
) -> None:
    written = xgen_model("fleet", "--server", untouched.url)
    file = tmp_path / "fleet.yaml"
    file.write_text(written.stdout, encoding="utf-8")
    same = ("--manifest", untouched.manifests, "--from", untouched.manifests)

    planned = xgen_model("plan", *same, "--fleet", file, "--output", "json")

    assert (written.returncode, written.stderr) == (0, "")
    assert '    - name: "node-a"\n      memory: ' in written.stdout
    assert "{backend: llama-server-cpu" in written.stdout
    assert (planned.returncode, planned.stderr) == (0, ""), planned.stdout
    models = [each for node in plan_of(planned.stdout)["nodes"] for each in node["models"]]
    assert {each["action"] for each in models} == {"unchanged"}


def test_what_files_alone_come_to_is_what_the_agent_tells(untouched: Agent, tmp_path: Path) -> None:
    fleet = tmp_path / "fleet.yaml"
    fleet.write_text(xgen_model("fleet", "--server", untouched.url).stdout, encoding="utf-8")
    bad = model("bad", backend="xllamacpp", extra_args="{bogus: 1}")
    moved = model("off", nodes="[node-b]")
    file = candidate(tmp_path, model("chat", extra_args="{ctx_size: 4096}"), bad, moved)
    words = ("plan", "--manifest", file, "--node", "node-a", "--output", "json")

    asked = plan_of(xgen_model(*words, "--server", untouched.url).stdout)
    alone = plan_of(xgen_model(*words, "--from", untouched.manifests, "--fleet", fleet).stdout)

    told, found = (
        {each["model"]: (each["action"], each["fields"]) for each in plan["nodes"][0]["models"]}
        for plan in (asked, alone)
    )
    assert found == told
    assert [told[name][0] for name in ("bad", "chat")] == ["refused", "surge"]
