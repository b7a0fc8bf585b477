"""What a rehearsal tells of files and fields, on a machine of GPUs."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from reconciler.cli.exits import ExitCode
from reconciler.cli.plan import exit_code
from reconciler.plan.changes import Change, NodeChanges, Verb
from reconciler.plan.phase import State
from reconciler.source.snapshot import Snapshot
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
    builds = (llama_server(kind="cuda"), llama_server(kind="cpu"))
    async with node_of(tmp_path, devices, builds) as made:
        made.push("gguf/org_one", CONTENT)
        yield made


def model(name: str, source: str = "gguf/org_one", **fields: object) -> dict[str, object]:
    return {"name": name, "source": source, "gpus": 1, **fields}


def text(*models: dict[str, object], **fields: object) -> str:
    spec = {"allow_empty": True, "models": list(models), **fields}
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


async def until_failed(node: Node) -> None:
    """A download, once."""
    for _ in range(10):
        await node.reconciler.tick()
        if [each.state for each in node.board.current().models] in ([State.ERROR], [State.BLOCKED]):
            return
    pytest.fail(f"nothing fails: {node.board.current().models}")


async def test_the_digest_that_the_last_good_spec_is_kept_with_is_no_change(node: Node) -> None:
    node.take_up(text(model("m", extra_args={"ctx_size": 2048})))
    await node.until_at_rest()
    node.take_up(text(model("m", extra_args={"ctx_size": 2048, "no_such_flag": 1})))
    await node.until_at_rest()

    made = await rehearsed(node, model("m", extra_args={"ctx_size": 4096}))

    assert [(each.path, each.old, each.new) for each in one(made, "m").fields] == [
        ("extra_args.ctx_size", 2048, 4096)
    ]


@pytest.mark.parametrize(
    "lacking",
    [
        model("typo", "gguf/org_onne"),
        model("typo", "gguf/org_onne", skip_memory_check=True),
        model("typo", file="other.gguf"),
        model("typo", digest="sha256:" + "0" * 64),
    ],
)
@pytest.mark.parametrize("catalog", [True, False])
async def test_what_the_hub_has_not_is_refused_in_the_words_that_the_loop_comes_to(
    node: Node, lacking: dict[str, object], catalog: bool
) -> None:
    if not catalog:
        (node.hub / "gguf" / "org_one" / ".xgen").rename(node.folder / "gone")
    told = one(await rehearsed(node, lacking), "typo")

    node.take_up(text(lacking))
    await until_failed(node)

    (now,) = node.board.current().models
    assert (told.verb, told.fetch, told.download_bytes) == (Verb.REFUSED, None, None)
    assert (told.reason, "cannot" in told.reason) == (now.reason, True)
    again = await node.rehearsals.rehearse(None)
    assert again.changes is not None
    assert (one(again.changes, "typo").verb, one(again.changes, "typo").reason) == (
        Verb.REFUSED,
        now.reason,
    )


async def test_what_was_pushed_meanwhile_is_not_refused(node: Node) -> None:
    node.take_up(text(model("late", "gguf/org_late")))
    await until_failed(node)
    node.push("gguf/org_late", CONTENT)

    late = one(await rehearsed(node, model("late", "gguf/org_late")), "late")

    assert (late.verb, late.fetch, late.download_bytes) == (Verb.START, True, len(CONTENT))


async def test_what_a_silent_hub_has_not_brought_is_not_cached(node: Node) -> None:
    away = node.hub.rename(node.folder / "away")
    node.take_up(text(model("m")))
    await until_failed(node)
    waiting = one(await rehearsed(node, model("m")), "m")
    away.rename(node.hub)

    assert (waiting.verb, waiting.fetch, waiting.cached_bytes) == (Verb.START, True, 0)


async def test_what_several_models_share_is_downloaded_once(node: Node) -> None:
    node.push("gguf/org_two", CONTENT)
    models = [model(name, gpus=0) for name in ("a", "b", "c")]
    other, named = model("d", "gguf/org_two", gpus=0), model("e", file="model.gguf", gpus=0)

    made = await rehearsed(node, *models, other, named)

    told = {each.model: (each.download_bytes, each.download_with) for each in made.changes}
    assert told == {
        "a": (len(CONTENT), None),
        "b": (0, "a"),
        "c": (0, "a"),
        "d": (len(CONTENT), None),
        "e": (0, "a"),
    }
    assert all(each.fetch for each in made.changes)


async def own(node: Node) -> NodeChanges:
    told = await node.rehearsals.rehearse(None)
    assert told.changes is not None
    return told.changes


async def test_what_a_waiting_revision_would_change_is_told_whole_and_held(node: Node) -> None:
    node.take_up(text(model("a"), model("b", gpus=0), model("c", gpus=0), stop_limit=0))
    await node.until_at_rest()
    assert exit_code([await own(node)]) == ExitCode.OK

    changed = model("a", extra_args={"ctx_size": 4096})
    node.take_up(text(changed, model("b", gpus=0, aliases=["x"]), stop_limit=0))
    assert await node.until_at_rest() == ()
    made = await own(node)

    assert {each.model: (each.verb, each.held) for each in made.changes} == {
        "a": (Verb.SURGE, "all of it waits for a confirmation"),
        "b": (Verb.REROUTE, "all of it waits for a confirmation"),
        "c": (Verb.STOP, "all of it waits for a confirmation"),
    }
    assert made.order == ()
    assert made.notes[0].startswith("revision r2 waits for confirmation: it would stop 1 of 3")
    assert exit_code([made]) == ExitCode.CHANGES


async def test_why_the_newest_revision_is_not_in_force_is_told(node: Node) -> None:
    node.take_up(text(model("a")))
    await node.until_at_rest()
    node.take_up(text(model("a", typo=1)))
    await node.until_at_rest()

    made = await own(node)

    error = made.errors[-1]
    assert error.startswith("models.yaml:1:")
    assert "typo" in error
    assert made.notes == ("revision r2 is refused for its errors; what is in force stays",)
    assert (one(made, "a").verb, exit_code([made])) == (Verb.UNCHANGED, ExitCode.ERROR)

    node.take_up(text(model("a")))
    await node.until_at_rest()
    assert exit_code([await own(node)]) == ExitCode.OK


async def test_a_manifest_that_cannot_be_read_is_told(node: Node) -> None:
    node.take_up(text(model("a")))
    await node.until_at_rest()
    node.intent.offer(
        Snapshot(location="here", revision="", error="cannot read here: it is not there")
    )
    await node.until_at_rest()

    made = await own(node)

    assert made.errors == ("cannot read here: it is not there",)
    assert exit_code([made]) == ExitCode.ERROR
