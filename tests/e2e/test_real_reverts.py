"""A real llama.cpp that cannot load its file gives way to the one that served before (R7)."""

import shutil
from pathlib import Path

import pytest

from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import REAL_PREFIX, manifest, real_model
from tests.model_files import gemma

PROMPT = "Q: What is the capital of France?\nA:"

pytestmark = [pytest.mark.engine, pytest.mark.timeout(300)]


def test_a_file_that_a_real_engine_cannot_load_costs_a_moment(
    make_agent: MakeAgent,
) -> None:
    agent = make_agent(real=True)
    whole = agent.hub / REAL_PREFIX / "gemma.gguf"
    whole.parent.mkdir(parents=True)
    shutil.copyfile(gemma(), whole)
    bad = agent.hub / "gguf/bad_gemma/gemma.gguf"
    bad.parent.mkdir(parents=True)
    spoil(whole, bad)
    changes = {"strategy": "recreate", "skip_memory_check": "true"}
    good = real_model("m", "ctx_size: 512", **changes)
    agent.write(manifest(good))
    agent.start()
    agent.wait_up()
    first = agent.wait_state("m", "loaded", seconds=120)

    agent.write(manifest(good.replace(REAL_PREFIX, "gguf/bad_gemma")))

    found = agent.wait_model(
        "m",
        lambda entry: bool(entry["degraded"] and entry["state"] == "loaded"),
        seconds=120,
    )
    assert (found["spec_hash"], found["digest"]) == (first["spec_hash"], first["digest"])
    assert "exited" in found["target"]["reason"]
    answer = agent.post(
        "/v1/completions",
        {"model": "m", "prompt": PROMPT, "max_tokens": 3, "temperature": 0},
    )
    assert "Paris" in answer.json()["choices"][0]["text"]


def spoil(whole: Path, bad: Path) -> None:
    """The same layers under another name of one of them, which the engine misses."""
    content = whole.read_bytes()
    name = b"blk.0.attn_norm.weight"
    assert name in content
    bad.write_bytes(content.replace(name, b"blk.0.attn_norm.weighs", 1))
