"""The SDKs and a load generator, unchanged, with a real llama.cpp behind the agent."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from tests.e2e.agent import REPOSITORY, Agent
from tests.e2e.byte_tokenizer import write_tokenizer
from tests.e2e.clients import HELLO
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import REAL_PREFIX, manifest, real_model
from tests.model_files import gemma

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

AIPERF = REPOSITORY / ".venv-aiperf" / "bin" / "aiperf"
REQUESTS = 24
TOKENS = 8


@pytest.fixture(scope="module")
def serving(make_lasting_agent: MakeAgent) -> Agent:
    """`gemma`, alias `claude`, and `embed`, both out of one file."""
    agent = make_lasting_agent(real=True)
    shutil.copyfile(gemma(), agent.model_file(REAL_PREFIX, "gemma.gguf"))
    agent.write(
        manifest(
            real_model("gemma", "ctx_size: 2048, parallel: 2", aliases="[claude]"),
            real_model("embed", "ctx_size: 256", type="embedding"),
        )
    )
    agent.start()
    agent.wait_up()
    for name in ("gemma", "embed"):
        agent.wait_state(name, "loaded", seconds=120)
    return agent


@pytest.fixture(scope="module")
def chatgpt(serving: Agent) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{serving.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(scope="module")
def claude(serving: Agent) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=serving.url, api_key="none", max_retries=0) as client:
        yield client


def test_openais_chat_whole_and_streamed_are_the_same_text(chatgpt: openai.OpenAI) -> None:
    asked: Any = {"model": "gemma", "messages": HELLO, "max_tokens": TOKENS, "temperature": 0}
    whole = chatgpt.chat.completions.create(**asked)
    stream = chatgpt.chat.completions.create(
        **asked, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content != ""
    assert whole.usage is not None
    assert whole.usage.completion_tokens == chunks[-1].usage.completion_tokens > 0


def test_openais_responses_whole_and_streamed(chatgpt: openai.OpenAI) -> None:
    asked: Any = {"model": "gemma", "input": "Say hello.", "max_output_tokens": TOKENS}
    assert chatgpt.responses.create(**asked).output_text
    # Not `responses.stream`: it needs a `content_index` that llama.cpp's deltas do not have.
    kinds = [event.type for event in chatgpt.responses.create(**asked, stream=True)]
    assert (kinds[0], kinds[-1]) == ("response.created", "response.completed")
    assert "response.output_text.delta" in kinds


def test_openais_embeddings_come_in_base64_as_it_asks_for_them(chatgpt: openai.OpenAI) -> None:
    answer = chatgpt.embeddings.create(model="embed", input=["a cat", "a kitten"])
    assert [len(each.embedding) for each in answer.data] == [640, 640]


def test_anthropics_messages_whole_and_streamed(claude: anthropic.Anthropic) -> None:
    asked: Any = {"model": "claude", "max_tokens": TOKENS, "messages": HELLO}
    whole = claude.messages.create(**asked)
    assert (whole.role, whole.content[0].type) == ("assistant", "text")
    assert whole._request_id
    with claude.messages.stream(**asked) as stream:
        text = "".join(stream.text_stream)
        last = stream.get_final_message()
    assert text
    assert last.content[0].text == text  # type: ignore[union-attr]
    assert last.usage.output_tokens > 0


def test_anthropics_tokens_are_counted(claude: anthropic.Anthropic) -> None:
    counted = claude.messages.count_tokens(model="claude", messages=HELLO)
    assert counted.input_tokens > 1


def test_an_engines_own_refusal_is_the_sdks_error(claude: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError):
        claude.messages.create(model="claude", max_tokens=4, messages=[], system="x" * 100_000)


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="no aiperf for this Python")
def test_aiperf_measures_streams_and_finds_no_error(serving: Agent, tmp_path: Path) -> None:
    assert AIPERF.is_file(), "run `make test-engines`: it installs aiperf"
    with tempfile.TemporaryDirectory() as its_own:  # its sockets' paths must be short
        done = _profile(serving.url, tmp_path, its_own)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    result = json.loads((tmp_path / "out" / "profile_export_aiperf.json").read_text())
    assert result["request_count"]["avg"] == REQUESTS
    assert not result.get("error_summary")
    assert 0 < result["time_to_first_token"]["avg"] < result["request_latency"]["avg"]
    assert result["inter_token_latency"]["avg"] > 0


def _profile(url: str, folder: Path, temporary: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            *(str(AIPERF), "profile", "--url", url, "--model", "gemma"),
            *("--endpoint-type", "chat", "--streaming", "--extra-inputs", "ignore_eos:true"),
            *("--request-count", str(REQUESTS), "--concurrency", "4", "--workers-max", "1"),
            *("--isl", "32", "--osl", str(TOKENS), "--random-seed", "1"),
            *("--tokenizer", str(write_tokenizer(folder / "tokenizer"))),
            *("--output-artifact-dir", str(folder / "out")),
            *("--ui", "none", "--no-gpu-telemetry", "--no-server-metrics"),
        ],
        cwd=folder,
        # Whatever it would fetch from a hub, it must do without.
        env={
            **os.environ,
            "HF_ENDPOINT": "http://127.0.0.1:9",
            "HOME": str(folder),
            "TMPDIR": temporary,  # it leaves its memory-mapped files behind
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
