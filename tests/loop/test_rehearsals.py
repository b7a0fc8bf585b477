"""What is rehearsed is what is then done: the same loop, on copies and in earnest."""

import os
import re
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from random import Random

import pytest

from reconciler.plan.actions import Action, StartBackend
from reconciler.plan.changes import Change, Planned, Verb
from reconciler.plan.ids import ModelName
from reconciler.plan.phase import State
from reconciler.status import Status
from tests.backend.build import llama_server
from tests.gguf_file import Tensor, header
from tests.loop.candidates import PLAIN, SOURCES, Candidates
from tests.loop.whole import Node, node_of
from tests.plan.gpu import nvidia

GIB = 2**30
CHANGES = 200
"""In the slow lane."""
SEED = int(os.environ.get("XGEN_TEST_SEED", "20261201"))
AMOUNTS = re.compile(r"[\d.,]+ [GM]iB")
PIDS = re.compile(r"\bpid 5\d{6}\b")


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    devices = tuple(nvidia(bus, memory_total_bytes=24 * GIB) for bus in (1, 2, 3, 4))
    builds = (llama_server(kind="cuda"), llama_server(kind="cpu"))
    async with node_of(tmp_path, devices, builds) as made:
        for number, source in enumerate(SOURCES):
            made.push(source, content(layers=8 * (1 + number % 5)))
        (made.hub / PLAIN).mkdir(parents=True)
        (made.hub / PLAIN / "model.safetensors").write_bytes(b"\0" * 64)
        (made.hub / PLAIN / "config.json").write_text('{"model_type": "llama"}')
        yield made


def content(layers: int) -> bytes:
    """A header whose cache takes `layers` times 8 KiB a token."""
    keys = {
        "general.architecture": "llama",
        "llama.block_count": layers,
        "llama.context_length": 131072,
        "llama.embedding_length": 4096,
        "llama.attention.head_count": 32,
        "llama.attention.head_count_kv": 16,
    }
    return header(keys, tensors=[Tensor((32,))]) + bytes(256)


def by_model(order: tuple[Planned, ...]) -> dict[str, list[tuple[object, ...]]]:
    """Files that two models share are fetched by who asks first, and may be here before the other
    one does."""
    found: dict[str, list[tuple[object, ...]]] = {}
    fetched: set[str] = set()
    for each in order:
        if each.kind == "FetchFiles":
            if each.reason in fetched:
                continue
            fetched.add(each.reason)
        found.setdefault(each.model, []).append((each.kind, each.gpus, each.reason))
    return found


def said(old_pids: set[int], match: re.Match[str]) -> str:
    return match[0] if int(match[0].split()[1]) in old_pids else "the new process"


def is_refused(change: Change) -> bool:
    return change.verb is Verb.REFUSED


def blocked(status: Status) -> dict[ModelName, str]:
    comings = [(each.name, each.target or each) for each in status.models]
    return {name: each.reason for name, each in comings if each.state is State.BLOCKED}


def without_amounts(reasons: Mapping[ModelName, str]) -> dict[ModelName, str]:
    """They follow from the catalog before files are here, and from the files afterwards."""
    return {model: AMOUNTS.sub("so much", reason) for model, reason in reasons.items()}


def tree(folder: Path) -> list[tuple[str, float]]:
    """Every file below it, and when it was written; but for what is only ever locked."""
    files = (each for each in folder.rglob("*") if each.is_file() and each.suffix != ".lock")
    return sorted((str(each), each.stat().st_mtime) for each in files)


def as_planned(action: Action, old_pids: set[int]) -> Planned:
    return Planned(
        kind=type(action).__name__,
        model=action.model,
        gpus=action.gpus if isinstance(action, StartBackend) else (),
        reason=PIDS.sub(partial(said, old_pids), action.reason),
    )


@pytest.mark.parametrize("changes", [25, pytest.param(CHANGES, marks=pytest.mark.slow)])
async def test_what_is_rehearsed_is_what_the_loop_then_does(node: Node, changes: int) -> None:
    random = Random(SEED)
    candidates = Candidates(random)
    print(f"seed {SEED}")
    node.take_up(candidates.text)
    await node.until_at_rest()
    taken, verbs, kinds = 0, Counter[Verb](), Counter[str]()
    while taken < changes:
        text = candidates.next()
        before, files = (node.board.current(), node.journal.last), tree(node.folder)
        told = await node.rehearsals.rehearse({"models.yaml": text.encode()})
        assert tree(node.folder) == files
        await node.reconciler.tick()
        assert (node.board.current(), node.journal.last) == before
        if told.changes is None:  # two models claim one GPU, say
            candidates.undo()
            continue
        node.effects.fails = candidates.unlucky()
        old_pids = {view.pid for view in node.machine.views.values()}

        node.take_up(text)
        begun = await node.until_at_rest()

        if node.effects.fails:  # what fails is not rehearsed; what comes of it is, from now on
            continue
        done = tuple(as_planned(action, old_pids) for action in begun)
        assert by_model(told.changes.order) == by_model(done), (SEED, taken, text)
        taken += 1
        verbs.update(each.verb for each in told.changes.changes)
        kinds.update(each.kind for each in done)
        if '"suspend"' in text:  # then it is told what comes once nothing is suspended any more
            continue
        refused = {each.model: each.reason for each in told.changes.changes if is_refused(each)}
        moved = {each.model for each in done if each.kind != "FetchFiles"}
        found = {
            name: why for name, why in blocked(node.board.current()).items() if name not in moved
        }
        assert without_amounts(refused) == without_amounts(
            {model: PIDS.sub(partial(said, old_pids), why) for model, why in found.items()}
        ), (SEED, taken, text)
    print(dict(verbs), dict(kinds))
