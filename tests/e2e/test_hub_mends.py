"""What is wrong at the hub is mended at the hub: the node notices by itself."""

import os
import sys
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


def test_a_model_that_is_still_being_copied_into_the_hub_is_taken_when_it_is_whole(
    agent: Agent,
) -> None:
    path = agent.model_file()
    path.write_bytes(MINIMAL_GGUF[:40])
    agent.write(manifest(model("a")))
    agent.start()
    agent.wait_up()
    blocked = agent.wait_state("a", "blocked")
    assert "truncated header; push a good one to gguf/test_model" in blocked["reason"]

    path.write_bytes(MINIMAL_GGUF)

    agent.wait_state("a", "loaded")


def test_a_model_that_was_cut_is_compared_with_the_hub_after_a_restart(agent: Agent) -> None:
    path = agent.model_file()
    path.write_bytes(MINIMAL_GGUF[:40])
    agent.write(manifest(model("a")))
    agent.start()
    agent.wait_up()
    agent.wait_state("a", "blocked")
    assert agent.stop() == 0
    path.write_bytes(MINIMAL_GGUF)

    agent.start()
    agent.wait_up()

    agent.wait_state("a", "loaded")


def test_what_never_loaded_is_compared_with_the_hub_too(make_agent: MakeAgent) -> None:
    """An engine may refuse what its header does not show."""
    agent = make_agent()
    engine = Path(agent.args[1])
    engine.rename(engine.with_name("stand-in"))
    engine.write_text(
        f"""#!{sys.executable}
import os, sys
args = sys.argv[1:]
if "--model" in args and b"good" not in open(args[args.index("--model") + 1], "rb").read():
    sys.exit(1)
os.execv({str(engine.with_name("stand-in"))!r}, ["llama-server", *args])
""",
        encoding="utf-8",
    )
    engine.chmod(0o755)
    path = agent.model_file()
    path.write_bytes(MINIMAL_GGUF + b"bad")
    agent.write(manifest(model("a")))
    agent.start()
    agent.wait_up()
    agent.wait_state("a", "blocked", seconds=90)

    path.write_bytes(MINIMAL_GGUF + b"good")

    agent.wait_state("a", "loaded", seconds=90)
