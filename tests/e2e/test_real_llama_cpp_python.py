"""The whole path with llama-cpp-python's real server: one agent, one model twice, and its deaths.

Each test waits until all is loaded and may leave it loading.
"""

import contextlib
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import openai
import pytest

from reconciler.backend.inventory import Build
from reconciler.backend.llama_cpp_python import KEY_VARIABLE, OPEN_PATH
from reconciler.backend.llama_cpp_python_builds import ask_llama_cpp_python
from tests.backend.build import llama_cpp_python
from tests.e2e.agent import REPOSITORY, Agent, Entry, is_alive
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import REAL_PREFIX, manifest, real_model
from tests.model_files import gemma
from tests.waiting import wait_until

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

PYTHON = REPOSITORY / ".venv-llama-cpp-python" / "bin" / "python"
LOAD_SECONDS = 120.0
DEFAULTS = "  defaults: {timeouts: {drain: 1s, stop: 3s}}\n"
CUT_PREFIX = "gguf/cut_gemma"
PROMPT = "Q: What is the capital of France?\nA:"


def model(name: str, extra_args: str = "ctx_size: 1024", **fields: str) -> str:
    return real_model(name, extra_args, **fields).replace("auto", "llama-cpp-python")


CHAT = model("chat", "ctx_size: 1024, chat_format: gemma", aliases="[gpt-4o-mini]")
OTHERS = (
    model("embed", "ctx_size: 512", type="embedding"),
    model("misspelt", "ctx_sise: 512"),
    model("cut").replace(REAL_PREFIX, CUT_PREFIX),
    model("no-such-type", "type_k: 999"),
)
SERVED = ("chat", "embed")


@pytest.fixture(scope="module")
def lasting(make_lasting_agent: MakeAgent) -> Agent:
    assert PYTHON.is_file(), "run `make test-engines`, which builds llama-cpp-python"
    agent = make_lasting_agent("--llama-cpp-python", str(PYTHON), real=True)
    shutil.copyfile(gemma(), agent.model_file(REAL_PREFIX, "gemma.gguf"))
    cut = agent.model_file(CUT_PREFIX, "gemma.gguf")
    shutil.copyfile(gemma(), cut)
    os.truncate(cut, cut.stat().st_size - 1000)
    return agent


@pytest.fixture
def node(lasting: Agent) -> Agent:
    """Up, with all that can be loaded loaded."""
    if lasting.process is None or lasting.exited is not None:
        lasting.write(manifest(CHAT, *OTHERS, spec=DEFAULTS))
        lasting.start()
        lasting.wait_up()
    for name in SERVED:
        lasting.wait_state(name, "loaded", seconds=LOAD_SECONDS)
    return lasting


@pytest.fixture
def client(node: Agent) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{node.url}/v1", api_key="none", max_retries=0) as made:
        yield made


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
    cut = node.wait_state("cut", "blocked")
    assert "cut off" in cut["reason"]


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


def _replaced(extra_args: str) -> str:
    """With a gap: the old process ends first."""
    return model("chat", extra_args, strategy="recreate")


def test_a_change_waits_for_no_stream_and_a_load_can_be_stopped(node: Agent) -> None:
    before = _of(node, "chat")
    body = {"model": "chat", "prompt": "Once", "max_tokens": 900, "stream": True}
    with _stream(node, body) as answer:
        lines = answer.iter_lines()
        assert next(lines)
        node.write(manifest(_replaced("ctx_size: 512"), *OTHERS, spec=DEFAULTS))
        with contextlib.suppress(httpx.HTTPError):
            assert "data: [DONE]" not in list(lines)
    _assert_gone(before)

    def loads(entry: Entry) -> bool:
        return bool(entry["state"] == "loading" and entry["pid"])

    loading = node.wait_model("chat", loads)
    node.write(manifest(_replaced("ctx_size: 768"), *OTHERS, spec=DEFAULTS))
    changed = node.wait_model(
        "chat",
        lambda entry: entry["state"] == "loaded" and entry["pid"] != loading["pid"],
        seconds=LOAD_SECONDS,
    )
    _assert_gone(loading)
    assert b"--n_ctx=768" in Path(f"/proc/{changed['pid']}/cmdline").read_bytes().split(b"\0")


def test_one_that_is_killed_is_started_anew(node: Agent) -> None:
    before = _of(node, "chat")
    os.kill(before["pid"], signal.SIGKILL)
    told = node.wait_model("chat", lambda entry: entry["pid"] != before["pid"])
    assert "SIGKILL" in told["reason"]
    again = node.wait_state("chat", "loaded", seconds=LOAD_SECONDS)
    assert again["pid"] != before["pid"]


def test_an_agent_that_ends_in_mid_stream_leaves_nothing(node: Agent) -> None:
    entries = [_of(node, name) for name in SERVED]
    body = {"model": "chat", "prompt": "Once", "max_tokens": 900, "stream": True}
    with _stream(node, body) as answer:
        assert next(answer.iter_lines())
        assert node.stop() == 0
    for entry in entries:
        _assert_gone(entry)
    assert node.processes() == []


def _of(agent: Agent, name: str) -> Entry:
    entry = agent.model(name)
    assert entry is not None
    return entry


def _stream(agent: Agent, body: Entry) -> contextlib.AbstractContextManager[httpx.Response]:
    return httpx.stream(
        "POST", f"{agent.url}/v1/completions", json=body, timeout=60, trust_env=False
    )


def _assert_gone(entry: Entry) -> None:
    """No process and no port."""
    wait_until(lambda: not is_alive(entry["pid"]), what=f"{entry['pid']} is gone")
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://127.0.0.1:{entry['port']}{OPEN_PATH}", trust_env=False)
