"""What a rehearsal tells of files and fields, on a machine of GPUs."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from reconciler.plan.changes import Change, NodeChanges
from tests.backend.build import llama_server
from tests.gguf_file import Tensor, header
from tests.loop.whole import Node, node_of
from tests.plan.gpu import nvidia

GIB = 2**30
KEYS = {
    "general.architecture": "llama",
    "llama.block_count": 8,
    "llama.context_length": 131072,
    "llama.embedding_length": 4096,
    "llama.attention.head_count": 32,
    "llama.attention.head_count_kv": 16,
}
CONTENT = header(KEYS, tensors=[Tensor((32,))]) + bytes(256)


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    devices = tuple(nvidia(bus, memory_total_bytes=24 * GIB) for bus in (1, 2))
    async with node_of(tmp_path, devices, (llama_server(kind="cuda"),)) as made:
        made.push("gguf/org_one", CONTENT)
        yield made


def model(name: str, source: str = "gguf/org_one", **fields: object) -> dict[str, object]:
    return {"name": name, "source": source, "gpus": 1, **fields}


def text(*models: dict[str, object]) -> str:
    spec = {"allow_empty": True, "models": list(models)}
    document = {
        "apiVersion": "xgen.io/v1alpha1",
        "kind": "ModelManifest",
        "metadata": {"name": "t"},
        "spec": spec,
    }
    return msgspec.json.encode(document).decode()


async def rehearsed(node: Node, *models: dict[str, object]) -> NodeChanges:
    told = await node.rehearsals.rehearse({"models.yaml": text(*models).encode()})
    assert told.changes is not None, told.problems
    return told.changes


def one(made: NodeChanges, name: str) -> Change:
    (change,) = [each for each in made.changes if each.model == name]
    return change


async def test_the_digest_that_the_last_good_spec_is_kept_with_is_no_change(node: Node) -> None:
    node.take_up(text(model("m", extra_args={"ctx_size": 2048})))
    await node.until_at_rest()
    node.take_up(text(model("m", extra_args={"ctx_size": 2048, "no_such_flag": 1})))
    await node.until_at_rest()

    made = await rehearsed(node, model("m", extra_args={"ctx_size": 4096}))

    assert [(each.path, each.old, each.new) for each in one(made, "m").fields] == [
        ("extra_args.ctx_size", 2048, 4096)
    ]
