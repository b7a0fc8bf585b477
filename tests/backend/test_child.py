"""The child program with the real wheel and a real model."""

import json
import math
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from reconciler.backend.builds import discovery
from reconciler.backend.child import BAD_CONFIG, CANNOT_LOAD, PORT_TAKEN
from reconciler.backend.engines import Engines
from reconciler.backend.launch import Launch
from reconciler.plan.desired import ModelType
from tests.backend.build import files, model
from tests.backend.served import Served, free_port, served
from tests.gguf_file import header
from tests.model_files import gemma
from tests.tiny_bert import CONTEXT, WIDTH, tiny_bert
from tests.waiting import wait_until

pytestmark = pytest.mark.engine

LONG = {"prompt": "Once upon a time", "max_tokens": 4000, "ignore_eos": True, "stream": True}


def launched(path: Path, *, port: int | None = None, name: str = "gemma", **spec: Any) -> Launch:
    engines = Engines(
        discovery(llama_server=None, vllm=None, search_path="", python=sys.executable).look()
    )
    spec["extra_args"] = {"ctx_size": 512, "threads": 2, **spec.get("extra_args", {})}
    desired = model(name, **spec)
    found = files(path)
    assessment = engines.assess(desired, found)
    assert assessment.choice is not None
    return engines.launch(
        desired,
        found,
        assessment.choice,
        port=port or free_port(),
        environment={"PATH": "/usr/bin:/bin", "VLLM_PORT": "tcp://10.0.0.1:80"},
        secrets={},
    )


def started(tmp_path: Path, **how: Any) -> AbstractContextManager[Served]:
    return served(launched(gemma(), **how), tmp_path / "log")


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    template = {"chat_template": "{{ 'told: ' + messages[0].content }}", "ctx_size": 4096}
    with started(tmp_path_factory.mktemp("llm"), extra_args={**template, "parallel": 2}) as one:
        one.wait_loaded()
        yield one


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("embedder")
    small = {"ctx_size": 256}
    with started(folder, type=ModelType.EMBEDDING, extra_args=small) as one:
        one.wait_loaded()
        yield one


def test_is_loading_before_it_is_healthy(tmp_path: Path) -> None:
    with started(tmp_path) as backend:
        seen = backend.wait_loaded()
    assert seen[0] == 503
    assert seen[-1] == 200


def test_serves_the_models_name_and_answers_what_the_probe_asks(llm: Served) -> None:
    probe = llm.launch.probe
    models = llm.get(probe.models_path).json()
    assert [entry["id"] for entry in models["data"]] == ["gemma"]
    answer = llm.post(probe.answer_path, dict(probe.answer_body))
    assert answer.status_code == 200
    assert answer.json()["usage"]["completion_tokens"] == 1


def test_refuses_requests_without_its_key(llm: Served) -> None:
    with llm.client(key="another") as client:
        assert client.get("/v1/models").status_code == 401
        assert client.get("/metrics").status_code == 401
        assert client.get("/health").status_code == 200


def test_has_the_arguments_of_the_manifest(llm: Served) -> None:
    properties = llm.get("/props").json()
    assert properties["chat_template"] == "{{ 'told: ' + messages[0].content }}"
    assert properties["total_slots"] == 2


def test_streams_an_answer(llm: Served) -> None:
    body = {"prompt": "One, two, three,", "max_tokens": 8, "stream": True, "temperature": 0}
    with llm.client() as client, client.stream("POST", "/v1/completions", json=body) as answer:
        events = [line for line in answer.iter_lines() if line.startswith("data: ")]
    assert events[-1] == "data: [DONE]"
    assert len(events) > 4


def test_notices_a_client_that_leaves_in_mid_stream(llm: Served) -> None:
    with llm.client() as client:
        with client.stream("POST", "/v1/completions", json=LONG) as answer:
            lines = answer.iter_lines()  # kept: httpx hangs up when the iterator goes
            next(lines)
            wait_until(lambda: llm.running() == 1, what="one running request")
        wait_until(lambda: llm.running() == 0, what="no running request", seconds=10)


def test_embeds_texts_up_to_its_whole_context(embedder: Served) -> None:
    probe = embedder.launch.probe
    assert embedder.post(probe.answer_path, dict(probe.answer_body)).status_code == 200
    texts = ["a cat", "a kitten", "word " * 240]
    answer = embedder.post("/v1/embeddings", {"input": texts}).json()
    vectors = [entry["embedding"] for entry in answer["data"]]
    assert [len(vector) for vector in vectors] == [640, 640, 640]
    assert answer["usage"]["prompt_tokens"] > 240
    assert sum(number * number for number in vectors[0]) == pytest.approx(1, abs=1e-3)


def reranker(folder: Path, *, type: ModelType = ModelType.RERANK) -> AbstractContextManager[Served]:
    path = folder / "model.gguf"
    path.write_bytes(tiny_bert())
    return served(launched(path, type=type), folder / "log")


def test_scores_documents_and_always_alike(tmp_path: Path) -> None:
    documents = ["hi", "it is a bear", "the giant panda is a bear"]
    asked: dict[str, Any] = {"query": "what is a panda?", "documents": documents}
    with reranker(tmp_path) as backend:
        backend.wait_loaded()
        probe = backend.launch.probe
        assert backend.post(probe.answer_path, dict(probe.answer_body)).status_code == 200
        answers = [backend.post("/v1/rerank", asked).json() for _ in range(2)]
        long = backend.post("/v1/rerank", {"query": "a", "documents": ["b " * (CONTEXT - 8)]})
    scores = {one["index"]: one["relevance_score"] for one in answers[0]["results"]}
    assert set(scores) == {0, 1, 2}
    assert len(set(scores.values())) == 3
    assert all(math.isfinite(score) for score in scores.values())
    again = {one["index"]: one["relevance_score"] for one in answers[1]["results"]}
    assert again == pytest.approx(scores, rel=1e-3)  # how they are batched shows in the last digits
    assert long.json()["usage"]["prompt_tokens"] > CONTEXT - 8


def test_a_reranker_as_a_model_for_embeddings_gives_vectors(tmp_path: Path) -> None:
    """With pooling `rank` the engine would send the memory behind its one score."""
    with reranker(tmp_path, type=ModelType.EMBEDDING) as backend:
        backend.wait_loaded()
        answer = backend.post("/v1/embeddings", {"input": "a panda"}).json()
    vector = answer["data"][0]["embedding"]
    assert len(vector) == WIDTH
    assert sum(abs(number) > 1e-3 for number in vector) > WIDTH / 2


def test_ends_with_a_clear_line_when_the_file_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(header({"general.architecture": "llama"}))
    launch = launched(path)
    path.unlink()
    with served(launch, tmp_path / "log") as backend:
        assert backend.exit_code() == CANNOT_LOAD
        last = backend.lines()[-1]
    assert last == f"xgen-model: cannot load {path}: No such file or directory"


@pytest.mark.parametrize("damage", ["tensors are missing", "header is garbage"])
def test_ends_with_a_clear_line_when_the_file_is_damaged(tmp_path: Path, damage: str) -> None:
    """Scenario 10, llama-swap#558: never "starting" for ever."""
    path = tmp_path / "model.gguf"
    path.write_bytes(header({"general.architecture": "llama"}))
    launch = launched(path)  # the agent would refuse the damaged file before any start
    with gemma().open("rb") as source:
        begin = bytearray(source.read(16 * 2**20))
    if damage == "header is garbage":
        begin[64:4096] = bytes(range(256)) * 15 + bytes(192)
    path.write_bytes(begin)
    with served(launch, tmp_path / "log") as backend:
        assert backend.exit_code() == CANNOT_LOAD
        # The engine's thread for its log may still write lines after ours.
        last = [line for line in backend.lines() if line.startswith("xgen-model: ")]
    assert len(last) == 1
    assert last[0].startswith(f"xgen-model: cannot load {path}: ")


def test_says_that_its_port_is_taken(tmp_path: Path) -> None:
    """Scenario 24, gpustack#3548: a conflict that nobody says."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with started(tmp_path, port=port) as backend:
            assert backend.exit_code() == PORT_TAKEN
            last = backend.lines()[-1]
    assert last == f"xgen-model: cannot listen on 127.0.0.1:{port}: Address already in use"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("{", "cannot read the configuration"),
        ("[]", "cannot read the configuration"),
        ('{"fields": {}}', "cannot read the configuration"),
    ],
)
def test_ends_at_a_configuration_that_it_cannot_read(
    tmp_path: Path, config: str, message: str
) -> None:
    launch = launched(gemma())
    with served(replace(launch, argv=(*launch.argv[:-1], config)), tmp_path / "log") as backend:
        assert backend.exit_code() == BAD_CONFIG
        assert message in backend.lines()[-1]


def test_ends_at_a_field_that_this_wheel_does_not_have(tmp_path: Path) -> None:
    launch = launched(gemma())
    config = json.loads(launch.argv[-1])
    config["fields"]["n_warp"] = 1
    argv = (*launch.argv[:-1], json.dumps(config))
    with served(replace(launch, argv=argv), tmp_path / "log") as backend:
        assert backend.exit_code() == BAD_CONFIG
        assert "cannot set n_warp in xllamacpp" in backend.lines()[-1]


def test_dies_of_a_signal_while_it_loads(tmp_path: Path) -> None:
    with started(tmp_path) as backend:
        backend.wait_listening()
        backend.process.send_signal(signal.SIGTERM)
        assert backend.exit_code() == -signal.SIGTERM


def test_dies_of_a_signal_while_it_streams(tmp_path: Path) -> None:
    with started(tmp_path, extra_args={"ctx_size": 4096}) as backend:
        backend.wait_loaded()
        with (
            backend.client() as client,
            client.stream("POST", "/v1/completions", json=LONG) as answer,
        ):
            lines = answer.iter_lines()
            next(lines)
            backend.process.send_signal(signal.SIGTERM)
            assert backend.exit_code() == -signal.SIGTERM
            with pytest.raises(httpx.TransportError):
                list(lines)


def test_dies_of_a_signal_that_its_parent_blocks_and_ignores(tmp_path: Path) -> None:
    """Scenario 7, llama-swap#38: a child that takes no TERM spoils every request after it."""
    deaf = (
        "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM}); "
        "signal.signal(signal.SIGTERM, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    )
    through = (sys.executable, "-c", deaf)
    with served(launched(gemma()), tmp_path / "log", through=through) as backend:
        backend.wait_loaded()
        backend.process.send_signal(signal.SIGTERM)
        assert backend.exit_code() == -signal.SIGTERM


def test_imports_next_to_nothing_beside_the_engine() -> None:
    listing = "import sys, reconciler.backend.child; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", listing], capture_output=True, text=True, check=True
    )
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    ours = {name for name in done.stdout.split() if name.startswith("reconciler")}
    assert loaded.isdisjoint({"pydantic", "aiohttp", "starlette", "structlog", "asyncio", "ruamel"})
    assert ours == {"reconciler", "reconciler.backend", "reconciler.backend.child"}
