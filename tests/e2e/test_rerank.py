"""Models that score texts, from the manifest to the answer. Scenario 53: gpustack#6184."""

import json
import math
import re
from pathlib import Path

import httpx
import pytest

from tests.cli.command import xgen_model
from tests.e2e.agent import Agent, Entry
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import manifest, model
from tests.tiny_bert import tiny_bert
from tests.waiting import wait_until

RANK = model(
    "rank", source="gguf/tiny_reranker", type="rerank", aliases="[jina-reranker, 'bge:m3']"
)
ASKED = {"query": "what is a panda?", "documents": ["hi", "it is a bear", "a giant panda"]}
CHAT = {"messages": [{"role": "user", "content": "hi"}]}


def stored(agent: Agent, *, head: bool = True) -> None:
    """The reranker in the agent's hub."""
    agent.model_file("gguf/tiny_reranker").write_bytes(tiny_bert(head=head))


def up(agent: Agent, *models: str) -> None:
    agent.write(manifest(*models))
    agent.start()
    agent.wait_up()


@pytest.fixture
def both(agent: Agent) -> Agent:
    """An agent that serves `chat` and `rank`."""
    stored(agent)
    up(agent, model("chat"), RANK)
    agent.wait_state("chat", "loaded")
    agent.wait_state("rank", "loaded")
    return agent


def counted(agent: Agent) -> dict[str, int]:
    """Answers of `rank` by their code."""
    page = agent.client.get(f"{agent.url}/metrics").text
    lines = re.findall(r"^xgen_requests_total{(.*?)} (\S+)$", page, re.MULTILINE)
    labels = [(dict(re.findall(r'(\w+)="(.*?)"', line)), count) for line, count in lines]
    return {said["code"]: int(float(n)) for said, n in labels if said["model"] == "rank"}


def refused(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["code"]


def test_a_reranker_answers_by_name_by_alias_and_as_the_only_one(both: Agent) -> None:
    for prefix in ("", "/api/inference"):
        for named in ({"model": "rank"}, {"model": "jina-reranker"}, {"model": "bge:m3"}, {}):
            answer = both.post(f"{prefix}/v1/rerank", {**named, **ASKED})
            assert answer.status_code == 200
            assert answer.headers["x-served-by"] == "node-a/rank"
            assert answer.json()["results"] == [{"index": 0, "relevance_score": 0.75}]


def test_a_reranker_is_not_asked_to_chat_nor_a_chat_model_to_rerank(both: Agent) -> None:
    wrong = (400, "wrong_model_type")

    assert refused(both.post("/v1/chat/completions", {"model": "jina-reranker", **CHAT})) == wrong
    assert refused(both.post("/v1/embeddings", {"model": "rank", "input": "hi"})) == wrong
    for path in ("/v1/rerank", "/rerank", "/v2/rerank", "/score", "/v1/score", "/classify"):
        assert refused(both.post(path, {"model": "chat", **ASKED})) == wrong


def test_an_engines_own_404_passes_and_is_counted(both: Agent) -> None:
    found = both.post("/v1/rerank", ASKED)
    missing = both.post("/v2/rerank", ASKED)

    assert (found.status_code, missing.status_code) == (200, 404)
    assert missing.headers["x-served-by"] == "node-a/rank"
    wait_until(lambda: counted(both) == {"200": 1, "404": 1}, what="both are counted")


@pytest.mark.slow
def test_the_commands_show_its_type(both: Agent, tmp_path: Path) -> None:
    status = xgen_model("status", "--server", both.url)
    assert re.search(r"^rank \(.*\) +loaded +rerank ", status.stdout, re.MULTILINE)
    view = json.loads(xgen_model("status", "--server", both.url, "--output", "json").stdout)
    types = {each["name"]: each["model_type"] for each in view["servers"][0]["models"]}
    assert types == {"chat": "llm", "rank": "rerank"}
    file = tmp_path / "new.yaml"
    file.write_text(manifest(model("chat"), RANK.replace("type: rerank", "type: embedding")))
    plan = xgen_model("plan", "--manifest", file, "--server", both.url)
    assert "  ^ rank  surge " in plan.stdout
    assert "      type: rerank → embedding" in plan.stdout
    assert xgen_model("validate", both.manifests).returncode == 0


@pytest.mark.slow
def test_files_without_a_head_are_refused_until_better_ones_come(agent: Agent) -> None:
    """llama.cpp#25447: it would answer with a number that means nothing."""
    stored(agent, head=False)
    up(agent, RANK)
    blocked = agent.wait_state("rank", "blocked")
    assert "as type rerank: it has no classification head" in blocked["reason"]
    assert refused(agent.post("/v1/rerank", ASKED)) == (503, "model_not_ready")

    stored(agent)

    agent.wait_state("rank", "loaded")
    assert agent.post("/v1/rerank", ASKED).status_code == 200


@pytest.mark.engine
def test_a_real_engine_scores_documents(make_agent: MakeAgent) -> None:
    agent = make_agent(real=True)
    stored(agent)
    up(agent, RANK.replace("llama-server-cpu", "xllamacpp"))
    assert agent.wait_state("rank", "loaded")["backend"] == "xllamacpp"

    answers = [agent.post(path, ASKED) for path in ("/v1/rerank", "/rerank")]
    best = agent.post("/v1/rerank", {"model": "bge:m3", **ASKED, "top_n": 1})
    of_another_kind = agent.post("/rerank", {"query": "a", "texts": ["b", "c"]})
    missing = [agent.post(path, ASKED) for path in ("/v2/rerank", "/v1/score", "/classify")]

    scores = [_scores(answer) for answer in answers]
    assert sorted(scores[0]) == [0, 1, 2]
    assert all(math.isfinite(score) for score in scores[0].values())
    assert scores[1] == pytest.approx(scores[0], rel=1e-3)
    assert list(_scores(best)) == [max(scores[0], key=scores[0].__getitem__)]
    assert {each["index"] for each in of_another_kind.json()} == {0, 1}
    assert [answer.status_code for answer in missing] == [404, 404, 404]
    assert {answer.headers["x-served-by"] for answer in missing} == {"node-a/rank"}
    wait_until(lambda: counted(agent) == {"200": 4, "404": 3}, what="all are counted")


def _scores(answer: httpx.Response) -> dict[int, float]:
    results: list[Entry] = answer.json()["results"]
    return {each["index"]: each["relevance_score"] for each in results}
