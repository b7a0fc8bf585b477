"""The whole path with llama-cpp-python's real server: one agent, and one model twice."""

import contextlib
import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import httpx
import openai
import pytest

from reconciler.backend.inventory import Build
from reconciler.backend.llama_cpp_python import KEY_VARIABLE, OPEN_PATH
from reconciler.backend.llama_cpp_python_builds import ask_llama_cpp_python
from tests.backend.build import llama_cpp_python
from tests.e2e.agent import Agent, Entry
from tests.e2e.conftest import MakeAgent, with_loaded
from tests.e2e.manifests import REAL_PREFIX, manifest, real_model
from tests.e2e.real_llama_cpp_python import PYTHON
from tests.model_files import gemma

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

LOAD_SECONDS = 120.0
DEFAULTS = "  defaults: {timeouts: {drain: 1s, stop: 3s}}\n"
PROMPT = "Q: What is the capital of France?\nA:"


def model(name: str, extra_args: str = "ctx_size: 1024", **fields: str) -> str:
    return real_model(name, extra_args, **fields).replace("auto", "llama-cpp-python")


CHAT = model("chat", "ctx_size: 1024, chat_format: gemma", aliases="[gpt-4o-mini]")
OTHERS = (
    model("embed", "ctx_size: 512", type="embedding"),
    model("misspelt", "ctx_sise: 512"),
    model("no-such-type", "type_k: 999"),
)
SERVED = ("chat", "embed")


@pytest.fixture(scope="module")
def lasting(make_lasting_agent: MakeAgent) -> Agent:
    assert PYTHON.is_file(), "run `make test-engines`, which builds llama-cpp-python"
    agent = make_lasting_agent("--llama-cpp-python", str(PYTHON), real=True)
    shutil.copyfile(gemma(), agent.model_file(REAL_PREFIX, "gemma.gguf"))
    return agent


@pytest.fixture
def node(lasting: Agent) -> Agent:
    """Up, with all that can be loaded loaded."""
    text = manifest(CHAT, *OTHERS, spec=DEFAULTS)
    return with_loaded(lasting, text, SERVED, LOAD_SECONDS)


def test_the_settings_that_it_has_are_known() -> None:
    (build,) = ask_llama_cpp_python(str(PYTHON), os.environ["PATH"], 60.0).found
    assert isinstance(build, Build), build
    (formats,) = (flag.choices for flag in build.flags.flags if flag.choices)
    assert {"gemma", "chatml", "llama-2"} <= set(formats)
    flags = tuple(replace(flag, choices=()) for flag in build.flags.flags)
    expected = llama_cpp_python()
    assert (build.version, flags) == (expected.version, expected.flags.flags)


def test_answers_as_each_type(node: Agent, client: openai.OpenAI) -> None:
    whole = client.completions.create(model="chat", prompt=PROMPT, max_tokens=12, temperature=0)
    assert "Paris" in whole.choices[0].text
    chunks = client.chat.completions.create(
        model="gpt-4o-mini",
        messages=[{"role": "user", "content": "Say hello."}],
        max_tokens=8,
        stream=True,
    )
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    texts = ["a cat sleeps", "a kitten is napping"]
    answer = client.embeddings.create(model="embed", input=texts, encoding_format="float")
    assert [len(each.embedding) for each in answer.data] == [640, 640]
    entries = [_of(node, name) for name in SERVED]
    assert [entry["backend"] for entry in entries] == ["llama-cpp-python"] * 2
    argv = Path(f"/proc/{entries[1]['pid']}/cmdline").read_text(encoding="utf-8").split("\0")
    assert "--kv_overrides=gemma3.pooling_type=int:1" in argv


def test_what_cannot_be_served_is_refused_with_the_reason(node: Agent) -> None:
    misspelt = node.wait_state("misspelt", "blocked")
    assert "has no flag --ctx-sise; did you mean ctx_size?" in misspelt["reason"]


def test_a_value_that_only_the_engine_can_judge_is_told_in_its_words(node: Agent) -> None:
    failed = node.wait_model(
        "no-such-type", lambda entry: entry["state"] in ("error", "blocked"), seconds=60
    )
    assert failed["last_lines"]


def test_a_new_request_does_not_end_the_stream_of_another(node: Agent) -> None:
    """Its own default is that it does, with a clean end."""
    texts: list[str] = []
    begun = threading.Event()

    def listen() -> None:
        body = {"model": "chat", "prompt": "One, two,", "max_tokens": 100, "stream": True}
        with _stream(node, body) as answer:
            for line in answer.iter_lines():
                texts.append(line)
                begun.set()

    listener = threading.Thread(target=listen)
    listener.start()
    assert begun.wait(60)
    port = _of(node, "chat")["port"]
    assert httpx.get(f"http://127.0.0.1:{port}{OPEN_PATH}", trust_env=False).status_code == 200
    second = node.post("/v1/completions", {"model": "chat", "prompt": "Hi", "max_tokens": 1})
    assert second.status_code == 200
    listener.join(60)
    assert texts.count("data: [DONE]") == 1
    assert any('"finish_reason": "length"' in text for text in texts)


def test_a_client_that_leaves_frees_it_for_the_next(node: Agent) -> None:
    body = {"model": "chat", "prompt": "Once", "max_tokens": 900, "stream": True}
    with _stream(node, body) as answer:
        assert next(answer.iter_lines())
    second = node.post("/v1/completions", {"model": "chat", "prompt": "Hi", "max_tokens": 1})
    assert second.status_code == 200


def test_its_key_stands_in_no_argv_and_is_needed(node: Agent) -> None:
    entry = _of(node, "chat")
    argv = Path(f"/proc/{entry['pid']}/cmdline").read_bytes()
    raw = Path(f"/proc/{entry['pid']}/environ").read_text(encoding="utf-8")
    env = dict(pair.split("=", 1) for pair in raw.split("\0") if "=" in pair)
    assert env[KEY_VARIABLE].encode() not in argv
    listing = f"http://127.0.0.1:{entry['port']}/v1/models"
    assert httpx.get(listing, trust_env=False, timeout=30).status_code == 401


def _of(agent: Agent, name: str) -> Entry:
    entry = agent.model(name)
    assert entry is not None
    return entry


def _stream(agent: Agent, body: Entry) -> contextlib.AbstractContextManager[httpx.Response]:
    return httpx.stream(
        "POST", f"{agent.url}/v1/completions", json=body, timeout=60, trust_env=False
    )
