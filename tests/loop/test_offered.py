"""What a fetch waits for: the hub's word on the format and the size of what is not here."""

from dataclasses import replace
from typing import Any

import pytest

from reconciler.backend.engines import Engines
from reconciler.backend.model_info import ModelInfo
from reconciler.backend.offer import HubSays, Offer
from reconciler.loop.offered import Offered, offered
from reconciler.plan.desired import DesiredModel, Format, ModelSpec
from reconciler.plan.ids import FilesDigest
from reconciler.plan.observed import FilesCached
from tests.backend.build import inventory, llama_server, model, vllm

ENGINES = Engines(inventory(llama_server(), vllm()))
OFFER = Offer(format=Format.GGUF, size_bytes=3, weights_bytes=2, info=ModelInfo())
HERE = FilesCached(digest=FilesDigest("d"), path="/m/x.gguf", root="/m", format=Format.GGUF)


def taken(
    wanted: DesiredModel, says: HubSays | None = None, files: FilesCached | None = None
) -> Offered:
    told = {wanted.name: says} if says is not None else {}
    return offered(told, wanted, files, ENGINES)


@pytest.mark.parametrize(
    ("fields", "waits"),
    [
        ({"source": "models/x"}, True),
        ({"source": "gguf/x"}, True),
        ({"source": "models/x", "skip_memory_check": True}, True),
        ({"source": "gguf/x", "skip_memory_check": True}, False),
        ({"source": "models/x", "skip_memory_check": True, "format": Format.GGUF}, False),
        ({"source": "models/x", "skip_memory_check": True, "backend": "vllm-cpu"}, False),
        ({"source": "file:///models/x"}, False),
    ],
)
def test_a_fetch_waits_for_the_size_and_where_no_name_tells_it_for_the_format(
    fields: dict[str, Any], waits: bool
) -> None:
    found = taken(model(**fields))
    assert (found.offer, found.unoffered is not None) == (None, waits)


def test_one_answer_has_both() -> None:
    wanted = model(source="models/x")
    assert taken(wanted, HubSays(spec=wanted.spec, offer=OFFER)) == Offered(offer=OFFER)


def test_an_answer_for_what_the_manifest_said_before_is_none() -> None:
    wanted = model(source="models/x")
    assert taken(wanted, HubSays(spec=ModelSpec(source="models/y"), offer=OFFER)).unoffered


def test_a_hub_that_cannot_say_keeps_nobody_waiting() -> None:
    assert taken(model(source="models/x"), HubSays()) == Offered()


def test_nobody_waits_for_what_is_here_or_disabled_or_where_nobody_asks() -> None:
    wanted = model(source="models/x")
    assert taken(wanted, files=HERE) == Offered()
    assert taken(replace(wanted, enabled=False)) == Offered()
    assert offered(None, wanted, None, ENGINES) == Offered()
