"""What is wrong at the hub is mended at the hub: the node notices by itself."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.agent import MINIMAL_GGUF, Agent
from tests.e2e.conftest import MakeAgent
from tests.e2e.manifests import manifest, model
from tests.s3_server import ACCESS_KEY, SECRET_KEY, S3Server, serve_s3


@pytest.fixture
def s3(tmp_path: Path) -> Iterator[S3Server]:
    (tmp_path / "buckets").mkdir()
    with serve_s3(tmp_path / "buckets") as server:
        yield server


def test_a_bucket_that_is_made_later_is_noticed(make_agent: MakeAgent, s3: S3Server) -> None:
    agent = make_agent("--hub", "s3://models")
    agent.environment |= {
        "MINIO_ENDPOINT": s3.endpoint,
        "MINIO_ACCESS_KEY": ACCESS_KEY,
        "MINIO_SECRET_KEY": SECRET_KEY,
    }
    agent.write(manifest(model("a")))
    agent.start()
    agent.wait_up()
    failed = agent.wait_state("a", "error")
    assert "there is no such bucket; check --hub" in failed["reason"]
    assert "next try after" in failed["reason"]

    s3.put("models", "gguf/test_model/model.gguf", MINIMAL_GGUF)

    agent.wait_state("a", "loaded")


def test_a_model_too_many_is_removed_from_the_hub(agent: Agent) -> None:
    other = agent.model_file(name="other.gguf")
    agent.write(manifest(model("a")))
    agent.start()
    agent.wait_up()
    failed = agent.wait_state("a", "error")
    assert "it holds 2 GGUF models; name one with `file:`" in failed["reason"]

    os.unlink(other)

    agent.wait_state("a", "loaded")
