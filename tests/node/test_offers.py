"""What a real hub says of a model before it is fetched."""

from pathlib import Path

import pytest

from reconciler.backend.model_info import ModelInfo
from reconciler.backend.offer import Offer
from reconciler.node.hub import make_store, make_writer
from reconciler.node.offers import offer_of
from reconciler.plan.desired import Format, ModelSpec
from reconciler.settings import HubSettings
from tests.cli.command import xgen_model
from tests.gguf_file import header

PREFIX = "gguf/org_model"
KEYS = {
    "general.architecture": "llama",
    "llama.context_length": 4096,
    "llama.embedding_length": 4096,
    "llama.block_count": 32,
    "llama.attention.head_count": 32,
    "llama.attention.head_count_kv": 8,
}
SIZE = len(header(KEYS))


@pytest.fixture
def hub(tmp_path: Path) -> str:
    """A directory with one model, without a catalog."""
    folder = tmp_path / "hub" / PREFIX
    folder.mkdir(parents=True)
    (folder / "model.gguf").write_bytes(header(KEYS))
    (folder / "README.md").write_text("a model")
    return str(tmp_path / "hub")


def offer(hub: str, source: str = PREFIX) -> Offer | None:
    settings = HubSettings(location=hub)
    store, spec = make_store(settings), ModelSpec(source=source)
    assert store is not None
    says = offer_of(make_writer(settings, hub), store, spec)
    assert says.spec == spec
    return says.offer


def pushed(hub: str) -> None:
    done = xgen_model("hub", "push", f"{hub}/{PREFIX}", PREFIX, "--hub", hub)
    assert done.returncode == 0, done.stderr


def test_a_catalog_tells_the_cache_too(hub: str) -> None:
    pushed(hub)
    told = offer(hub)
    assert told is not None
    assert (told.format, told.size_bytes, told.weights_bytes) == (Format.GGUF, SIZE, SIZE)
    assert told.info == ModelInfo(
        weights_bytes=SIZE, kv_bytes_per_token=131072, context_length=4096
    )


def test_without_a_catalog_the_files_alone_are_known(hub: str) -> None:
    told = offer(hub)
    assert told is not None
    assert (told.weights_bytes, told.info) == (SIZE, ModelInfo())


def test_what_no_hub_has_is_offered_by_none(hub: str) -> None:
    assert offer(hub, "file:///nowhere/model.gguf") is None
