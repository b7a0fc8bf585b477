"""A hub in a folder is asked: for the GGUF of what cannot run otherwise, and what it offers."""

import asyncio
import threading
from functools import partial
from pathlib import Path

import pytest

from reconciler.apply.hub_questions import HubQuestions
from reconciler.backend.offer import HubSays
from reconciler.cache.beside import gguf_beside, gguf_hint
from reconciler.cache.store import Store
from reconciler.node.offers import offer_of
from reconciler.plan.desired import ModelSpec
from reconciler.plan.ids import ModelName
from tests.apply.test_comparisons import until
from tests.cache.specs import CountingStore, put, spec

MODEL = ModelName("m")
WANTED = {MODEL: spec("huggingface/org_name")}


def asking(store: Store, woken: asyncio.Event) -> HubQuestions[str]:
    return HubQuestions("hints", store, gguf_hint, wake=woken.set, between_seconds=0.001)


def offers(store: Store | None, woken: asyncio.Event) -> HubQuestions[HubSays]:
    return HubQuestions(
        "offers",
        store,
        partial(offer_of, None),
        silence=HubSays(),
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
        ("gguf/org_name", "gguf/org_name", None),
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


@pytest.mark.parametrize("hub", [True, False])
async def test_what_the_hub_cannot_tell_keeps_nobody_waiting(tmp_path: Path, hub: bool) -> None:
    woken = asyncio.Event()
    asked = offers(CountingStore(tmp_path / "gone") if hub else None, woken)
    asked.watch({MODEL: spec("models/org_name")})
    async with asyncio.timeout(30):
        await woken.wait()
    assert asked.told == {MODEL: HubSays()}
    await asked.close()


async def test_what_was_asked_before_a_hurry_is_asked_again(tmp_path: Path) -> None:
    """Whoever pauses meanwhile may be told first."""
    asked: list[str] = []
    begun, released = threading.Event(), threading.Event()

    def ask(_: Store, spec: ModelSpec) -> str:
        asked.append(spec.source)
        if spec.source == "gguf/org_slow":
            begun.set()
            released.wait(30)
        return "told"

    asks = HubQuestions("words", CountingStore(tmp_path), ask, wake=lambda: None)
    slow, quick = ModelName("slow"), ModelName("quick")
    asks.watch({slow: spec("gguf/org_slow"), quick: spec("gguf/org_quick")})
    await until(lambda: quick in asks.told and begun.is_set())

    asks.hurry()

    await until(lambda: asked.count("gguf/org_quick") == 2)
    released.set()
    await until(lambda: asked.count("gguf/org_slow") == 2)
    await asks.close()
