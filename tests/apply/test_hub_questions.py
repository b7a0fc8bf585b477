"""A hub in a folder is asked: for the GGUF of what cannot run otherwise, and for formats."""

import asyncio
from pathlib import Path

import pytest

from reconciler.apply.hub_questions import HubQuestions
from reconciler.cache.beside import gguf_beside, gguf_hint
from reconciler.cache.format_in_hub import format_in_hub
from reconciler.cache.store import Store
from reconciler.errors import XgenError
from reconciler.plan.desired import Format
from reconciler.plan.ids import ModelName
from tests.apply.test_comparisons import until
from tests.cache.specs import CountingStore, put, spec

MODEL = ModelName("m")
WANTED = {MODEL: spec("huggingface/org_name")}


def asking(store: Store, woken: asyncio.Event) -> HubQuestions[str]:
    return HubQuestions("hints", store, gguf_hint, wake=woken.set, between_seconds=0.001)


def formats(store: Store | None, woken: asyncio.Event) -> HubQuestions[Format]:
    return HubQuestions(
        "formats",
        store,
        format_in_hub,
        silence=Format.AUTO,
        wake=woken.set,
        between_seconds=0.001,
    )


@pytest.mark.parametrize(
    ("source", "held", "found"),
    [
        ("huggingface/org_name", "gguf/org_name", "gguf/org_name"),
        ("huggingface/org_name@v1", "gguf/org_name-GGUF", "gguf/org_name-GGUF"),
        ("hf://org/name@v1", "gguf/org_name", "gguf/org_name"),
        ("huggingface/org_name", "gguf/org_name2", None),
        ("file:///srv/org_name", "gguf/org_name", None),
    ],
)
def test_the_same_model_is_found_by_its_name(
    tmp_path: Path, source: str, held: str, found: str | None
) -> None:
    put(tmp_path, f"{held}/x.gguf")
    assert gguf_beside(CountingStore(tmp_path), spec(source)) == found


async def test_a_hint_comes_with_a_push_and_goes_with_the_question(tmp_path: Path) -> None:
    woken, store = asyncio.Event(), CountingStore(tmp_path)
    hints = asking(store, woken)
    hints.watch(WANTED)
    await until(lambda: store.listed >= 4)
    assert (dict(hints.told), woken.is_set()) == ({}, False)
    put(tmp_path, "gguf/org_name/x.gguf")
    async with asyncio.timeout(30):
        await woken.wait()
    assert hints.told == {MODEL: "the hub holds gguf/org_name: name it as `fallback:`"}
    hints.watch({})
    assert hints.told == {}
    await hints.close()


async def test_while_the_hub_is_away_nothing_is_said(tmp_path: Path) -> None:
    store = CountingStore(tmp_path / "gone")
    hints = asking(store, asyncio.Event())
    hints.watch(WANTED)
    await until(lambda: store.listed >= 2)
    assert hints.told == {}
    await hints.close()


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
    tmp_path: Path, files: list[str], said: dict[str, str], expected: Format
) -> None:
    for name in files:
        put(tmp_path, f"models/org_name/{name}")

    assert format_in_hub(CountingStore(tmp_path), spec("models/org_name", **said)) is expected


def test_a_format_that_is_said_and_not_there_names_both(tmp_path: Path) -> None:
    put(tmp_path, "models/org_name/a.gguf")

    with pytest.raises(XgenError, match=r"says format: safetensors, and there is a\.gguf"):
        format_in_hub(CountingStore(tmp_path), spec("models/org_name", format=Format.SAFETENSORS))


@pytest.mark.parametrize("hub", [True, False])
async def test_what_the_hub_cannot_tell_keeps_nobody_waiting(tmp_path: Path, hub: bool) -> None:
    woken = asyncio.Event()
    asked = formats(CountingStore(tmp_path / "gone") if hub else None, woken)
    asked.watch({MODEL: spec("models/org_name")})
    async with asyncio.timeout(30):
        await woken.wait()
    assert asked.told == {MODEL: Format.AUTO}
    await asked.close()
