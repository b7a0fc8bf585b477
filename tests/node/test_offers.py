"""What a real hub says of a model before it is fetched."""

from pathlib import Path
from typing import Any

import pytest

from reconciler.backend.model_info import ModelInfo
from reconciler.backend.offer import Offer
from reconciler.errors import XgenError
from reconciler.node.hub import make_store, make_writer
from reconciler.node.offers import offer_of
from reconciler.plan.desired import Format, ModelSpec
from reconciler.plan.windows import Windows
from reconciler.settings import HubSettings
from tests.cache.specs import put
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


def offer(hub: str, source: str = PREFIX, **said: Any) -> Offer | None:
    settings = HubSettings(location=hub)
    store, spec = make_store(settings), ModelSpec(source=source, **said)
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


def test_a_catalog_tells_of_windows(hub: str) -> None:
    keys = {name.replace("llama", "gemma3"): value for name, value in KEYS.items()}
    content = header({**keys, "general.architecture": "gemma3",
                      "gemma3.attention.sliding_window": 1024})  # fmt: skip
    (Path(hub) / PREFIX / "model.gguf").write_bytes(content)
    pushed(hub)
    told = offer(hub)
    assert told is not None
    assert told.info.windows == Windows(
        layer_bytes=4096, full_layers=5, windowed_layers=27, window_tokens=1024
    )


def test_without_a_catalog_the_files_alone_are_known(hub: str) -> None:
    told = offer(hub)
    assert told is not None
    assert (told.weights_bytes, told.info) == (SIZE, ModelInfo())


def test_what_no_hub_has_is_offered_by_none(hub: str) -> None:
    assert offer(hub, "file:///nowhere/model.gguf") is None


@pytest.mark.parametrize(
    ("files", "said", "expected"),
    [
        (["a.gguf"], {}, Format.GGUF),
        (["a.safetensors", "config.json"], {}, Format.SAFETENSORS),
        (["a.safetensors", "a.gguf"], {}, Format.SAFETENSORS),
        (["a.safetensors", "a.gguf"], {"file": "a.gguf"}, Format.GGUF),
    ],
)
def test_the_files_that_would_be_fetched_tell_the_format(
    hub: str, files: list[str], said: dict[str, str], expected: Format
) -> None:
    for name in files:
        put(Path(hub), f"models/org_name/{name}")

    told = offer(hub, "models/org_name", **said)

    assert told is not None
    assert told.format is expected


def test_a_format_that_is_said_and_not_there_names_both(hub: str) -> None:
    put(Path(hub), "models/org_name/a.gguf")

    with pytest.raises(XgenError, match=r"says format: safetensors, and there is a\.gguf"):
        offer(hub, "models/org_name", format=Format.SAFETENSORS)
