"""Several builds of one backend under one agent, and builds that are replaced while models run."""

from pathlib import Path

import pytest

from tests.cli.command import xgen_model
from tests.e2e.agent import Agent, Entry, llama_server_stand_in
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import manifest, model


def build(folder: Path, version: str) -> Path:
    folder.mkdir(exist_ok=True)
    return llama_server_stand_in(folder, version=version)


@pytest.fixture
def node(make_agent: MakeAgent, tmp_path: Path) -> Agent:
    """An agent with a default build, one called `b2`, and one that is nowhere; not started yet."""
    second = build(tmp_path / "b2", "2")
    agent = make_agent("--engine", f"b2=llama-server-cpu:{second}")
    agent.environment["XGEN_ENGINE"] = "overridden=vllm-cpu:/nowhere"
    agent.model_file()
    return agent


def start(agent: Agent, *models: str) -> None:
    agent.write(manifest(*models))
    agent.start()
    agent.wait_up()


def engine(entry: Entry) -> Entry:
    made: Entry = entry["engine"]
    return made


def shown(agent: Agent, *command: str) -> str:
    done = xgen_model(*command, "--data-dir", str(agent.data))
    return " ".join(done.stdout.split())


@pytest.mark.slow
def test_two_builds_of_one_backend_run_side_by_side(node: Agent) -> None:
    start(node, model("a"), model("b", backend="auto", engine="b2"))
    a, b = node.wait_state("a", "loaded"), node.wait_state("b", "loaded")

    assert (engine(a)["name"], engine(a)["version"]) == (None, "9999 (stand-in)")
    assert (engine(b)["name"], engine(b)["version"]) == ("b2", "2")
    assert (a["backend"], b["backend"]) == ("llama-server-cpu", "llama-server-cpu")
    assert b["backend_reason"].startswith("the manifest asks for b2: ")
    named = [each for each in node.self_view()["engines"] if each["name"] is not None]
    assert [(each["name"], each["version"], each["problem"]) for each in named] == [
        ("b2", "2", None)
    ]
    assert "b2 (llama-server-cpu)" in shown(node, "status")
    assert "engines of node-a: b2 is llama-server-cpu 2" in shown(node, "status")


@pytest.mark.slow
def test_a_name_that_leads_nowhere_blocks_only_who_names_it(make_agent: MakeAgent) -> None:
    agent = make_agent("--engine", "gone=llama-server-cpu:/nowhere/llama-server")
    agent.model_file()
    start(agent, model("a"), model("b", engine="gone"), model("c", engine="gon"))

    agent.wait_state("a", "loaded")
    b, c = agent.wait_state("b", "blocked"), agent.wait_state("c", "blocked")
    assert b["reason"] == "cannot use engine gone: /nowhere/llama-server is not a file"
    assert c["reason"] == (
        "cannot use engine gon: this node has gone (llama-server-cpu), which it cannot use; "
        "did you mean gone?"
    )
    told = agent.wait_condition("EnginesUsable", "False")
    assert told["message"] == "gone: /nowhere/llama-server is not a file"
    assert told["message"] in shown(agent, "status")


@pytest.mark.slow
def test_a_replaced_build_is_told_and_used_from_the_next_start_on(
    node: Agent, tmp_path: Path
) -> None:
    start(node, model("b", engine="b2"))
    before = node.wait_state("b", "loaded")
    build(tmp_path / "b2", "3")

    drifted = node.wait_model("b", lambda entry: engine(entry)["drift"] is not None)
    said = "2 runs, 3 is installed by now, and used from its next start on"
    assert engine(drifted) == {"name": "b2", "version": "2", "installed": "3", "drift": said}
    assert (drifted["pid"], drifted["state"]) == (before["pid"], "loaded")
    assert f"engine of b: {said}" in shown(node, "status")
    assert f"(pid {before['pid']}) engine: {said}" in shown(node, "plan")

    node.write(manifest(model("b", engine="b2", extra_args="{ctx_size: 64}")))
    after = node.wait_model("b", lambda entry: engine(entry)["version"] == "3")
    assert after["pid"] != before["pid"]
    assert engine(after)["drift"] is None


@pytest.mark.slow
def test_a_build_that_goes_ends_nothing_and_is_found_when_it_is_back(
    node: Agent, tmp_path: Path
) -> None:
    start(node, model("b", engine="b2"))
    before = node.wait_state("b", "loaded")
    (tmp_path / "b2" / "llama-server").unlink()

    drifted = node.wait_model("b", lambda entry: engine(entry)["drift"] is not None)
    assert engine(drifted)["drift"].startswith("it runs, and could not be started again: ")
    assert (drifted["pid"], drifted["state"]) == (before["pid"], "loaded")
    node.wait_condition("EnginesUsable", "False")
    build(tmp_path / "b2", "2")
    node.wait_model("b", lambda entry: "replaced" in (engine(entry)["drift"] or ""))
    assert node.condition("EnginesUsable") is None
    assert node.wait_state("b", "loaded")["pid"] == before["pid"]


@pytest.mark.slow
def test_what_one_build_cannot_load_is_tried_with_the_next(node: Agent, tmp_path: Path) -> None:
    """R7: blocked until something that it depends on changes, the engine's program for one."""
    path = tmp_path / "b2" / "llama-server"
    good = path.read_text()
    path.write_text(good.replace("value = lambda", 'sys.exit("bad build")\nvalue = lambda'))
    start(node, model("b", engine="b2"))
    node.wait_state("b", "blocked", seconds=90)

    build(tmp_path / "b2", "3")

    node.wait_state("b", "loaded")
    events = node.client.get(f"{node.url}/api/management/events").json()["events"]
    (forgiven,) = [each for each in events if each["kind"] == "FailureForgiven"]
    assert forgiven["reason"].startswith(f"there is another engine: {path}, version 3; it had")
    changed = [each for each in events if each["kind"] == "EngineChanged"]
    assert [(each["data"]["version"], each["data"]["before"]) for each in changed] == [("3", "2")]


@pytest.mark.slow
def test_another_name_is_a_restart(node: Agent, tmp_path: Path) -> None:
    start(node, model("b"))
    before = node.wait_state("b", "loaded")
    path = tmp_path / "next.yaml"
    path.write_text(manifest(model("b", engine="b2")))

    planned = shown(node, "plan", "--manifest", str(path))
    refused = xgen_model("plan", "--manifest", write(tmp_path, "b3"), "--data-dir", str(node.data))
    node.write(path.read_text())

    assert "^ b surge" in planned
    assert f"engine: b2 (llama-server-cpu) is {tmp_path}/b2/llama-server, version 2" in planned
    assert "engine: (not set) → b2" in planned
    assert refused.returncode == 1
    assert "cannot use engine b3: this node has b2 (llama-server-cpu)" in " ".join(
        refused.stdout.split()
    )
    after = node.wait_model("b", lambda entry: engine(entry)["name"] == "b2")
    assert after["pid"] != before["pid"]


def write(folder: Path, name: str) -> str:
    path = folder / f"{name}.yaml"
    path.write_text(manifest(model("b", engine=name)))
    return str(path)


def test_without_an_agent_names_are_only_noted(tmp_path: Path) -> None:
    path = write(tmp_path, "b3")
    validated = xgen_model("validate", path)
    planned = xgen_model("plan", "--offline", "--manifest", path, "--node", "node-a")
    assert validated.returncode == 0
    assert "engines, which only the agents of the nodes know (run --engine): b3" in validated.stdout
    assert planned.returncode == 2
    assert "note: whether it has the engines b3, only its agent knows" in planned.stdout
