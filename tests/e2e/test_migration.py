"""What docs/migration.md promises to operators of the imperative service, at a real agent."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.agent import MINIMAL_GGUF, REPOSITORY, Agent, llama_server_stand_in
from tests.e2e.manifests import manifest, model

PAGE = (REPOSITORY / "docs" / "migration.md").read_text(encoding="utf-8")
CALLS = re.findall(r"^\| `(GET|POST) (/\S+)` \| (there|not built)", PAGE, re.MULTILINE)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    """With a models folder of before: a model of the hub, and one that the hub lacks."""
    models = tmp_path / "app-models"
    engine = ("--llama-server", str(llama_server_stand_in(tmp_path)))
    agent = Agent(root=tmp_path, args=[*engine, "--models-dir", str(models)])
    agent.data.mkdir()
    agent.model_file("gguf/in_hub")
    for prefix in ("gguf/in_hub", "gguf/here_alone"):
        (models / prefix).mkdir(parents=True)
        (models / prefix / "model.gguf").write_bytes(MINIMAL_GGUF)
    agent.write(
        manifest(
            model("chat", source="gguf/in_hub"),
            model("alone", source="gguf/here_alone"),
        )
    )
    agent.start()
    agent.wait_up()
    yield agent
    agent.stop()
    agent.client.close()
    assert not agent.processes()


def test_the_models_folder_of_before_is_taken_in_and_nothing_is_fetched(agent: Agent) -> None:
    for name in ("chat", "alone"):
        agent.wait_state(name, "loaded")
    models = agent.root / "app-models" / "gguf"
    assert (models / "in_hub").is_symlink()
    assert (models / "in_hub" / "model.gguf").read_bytes() == MINIMAL_GGUF
    assert not (models / "here_alone").is_symlink()
    page = agent.client.get(f"{agent.url}/metrics").text
    assert 'xgen_hub_transfer_bytes_total{direction="pull"} 0.0' in page


def test_each_call_of_before_is_there_or_not_as_the_page_says(agent: Agent) -> None:
    assert len(CALLS) == 11
    assert {standing for _, _, standing in CALLS} == {"there", "not built"}
    for method, path, standing in CALLS:
        body: dict[str, str] | None = {} if method == "POST" else None
        answer = agent.client.request(method, f"{agent.url}{path}", json=body)
        code = (answer.json().get("error") or {}).get("code")
        assert (code == "unknown_path") == (standing == "not built"), (method, path)
