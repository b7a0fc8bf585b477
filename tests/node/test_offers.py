"""What a real hub says of a model before it is fetched."""

from pathlib import Path
from typing import Any

import pytest

from reconciler.backend.model_info import ModelInfo
from reconciler.backend.offer import HubSays, Offer
from reconciler.errors import Transient
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


def says(hub: str, source: str = PREFIX, **said: Any) -> HubSays:
    settings = HubSettings(location=hub)
    store, spec = make_store(settings), ModelSpec(source=source, **said)
    assert store is not None
    told = offer_of(make_writer(settings, hub), store, spec)
    assert told.spec == spec
    return told


def offer(hub: str, source: str = PREFIX, **said: Any) -> Offer | None:
    return says(hub, source, **said).offer


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

    told = says(hub, "models/org_name", format=Format.SAFETENSORS)

    assert told.missing is not None
    assert "says format: safetensors, and there is a.gguf" in told.missing
    assert not told.is_final


@pytest.mark.parametrize("catalog", [False, True])
def test_what_the_hub_has_not_is_told_in_the_words_of_a_fetch(hub: str, catalog: bool) -> None:
    if catalog:
        pushed(hub)

    assert says(hub, "gguf/org_modell").missing == (
        "cannot fetch gguf/org_modell: the hub has none; nearest: gguf/org_model"
    )
    assert says(hub, "hf://org/other") == HubSays(spec=ModelSpec(source="hf://org/other"))
    other = says(hub, digest="sha256:" + "0" * 64).missing
    assert other is not None
    assert other.startswith("cannot fetch ")


def test_a_hub_that_is_away_says_nothing_of_a_model(hub: str) -> None:
    with pytest.raises(Transient, match="cannot list"):
        says(f"{hub}/away")
