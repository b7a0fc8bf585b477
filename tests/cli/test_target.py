"""Commands that ask another node, through the agent that they find."""

import asyncio
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.proxy.peers.peer import Peers
from reconciler.status import Device
from tests.cli.command import XGEN_MODEL, environment
from tests.proxy.builders import Operators, model
from tests.proxy.pair import TOKEN, Pair, beside, pair, peer
from tests.proxy.test_feeds import tell

GPU = Device(
    index=0,
    identity="GPU-1",
    uuid="GPU-1",
    pci="0000:01:00.0",
    name="NVIDIA L4",
    vendor="nvidia",
    gpu_class="nvidia",
    memory_total_bytes=1 << 34,
)


async def said(nodes: Pair, *arguments: str) -> tuple[int, str, str]:
    """As `said_through` node-a."""
    return await said_through(nodes.a.port, *arguments)


async def said_through(
    port: int, *arguments: str, target: str | None = "node-b"
) -> tuple[int, str, str]:
    """The exit code, stdout and stderr of a command by which an agent is asked for `target`."""
    named = {} if target is None else {"XGEN_TARGET": target}
    command = await asyncio.create_subprocess_exec(
        XGEN_MODEL,
        *arguments,
        env=environment(XGEN_SERVER=f"127.0.0.1:{port}", **named),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, errors = await command.communicate()
    return command.returncode or 0, out.decode(), errors.decode()


@pytest.fixture
async def nodes() -> AsyncIterator[Pair]:
    async with pair(model(), token=TOKEN) as both:
        yield both


async def test_reading_asks_that_node(nodes: Pair) -> None:
    tell(nodes.b.operators, about="m-of-b")
    for arguments, wanted in (
        (("status", "--output", "json"), '"self_node": "node-b"'),
        (("status", "--history", "--output", "json"), '"node": "node-b"'),
        (("events",), "m-of-b"),
    ):
        code, out, errors = await said(nodes, *arguments)
        assert (code, errors) == (0, "")
        assert wanted in out


async def test_changing_asks_that_node_where_there_is_a_token(nodes: Pair) -> None:
    code, out, _ = await said(nodes, "reconcile", "--retry")
    assert (code, nodes.b.operators.asked) == (0, [(True, None)])
    assert out.startswith("node-b looks again")
    assert (await said(nodes, "suspend", "--by", "kim"))[:2] == (
        0,
        "node-b: suspend was carried out\n",
    )
    assert (await said(nodes, "resume", "--by", "kim"))[:2] == (
        0,
        "node-b: resume was carried out\n",
    )
    assert not nodes.a.operators.asked


async def test_without_a_token_a_change_says_what_helps() -> None:
    async with pair() as nodes:
        code, out, errors = await said(nodes, "suspend")
        assert (code, out) == (1, "")
        assert "cannot do that for a client of node node-a" in errors
        assert "--cluster-token-file" in errors
        assert "run the command on" not in errors


async def test_a_node_that_is_not_there_is_told_in_words(nodes: Pair) -> None:
    code, _, errors = await said(nodes, "status", "--target", "node-z")
    assert code == 1
    assert "known nodes are node-a, node-b" in errors
    nodes.known.peers = Peers(all=(peer(1, reachable=False, because="it hangs", since="today"),))
    code, _, errors = await said(nodes, "events")
    assert code == 1
    assert "cannot reach node node-b at 127.0.0.1:1: it refuses connections" in errors
    assert "not reachable since today: it hangs" in errors


async def test_logs_of_that_node_are_never_those_of_this_one(tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    for folder, line in ((theirs, "there"), (ours / "logs", "here")):
        folder.mkdir(parents=True)
        (folder / "llm@1.log").write_text(f"{line}\n", encoding="utf-8")
    arguments = ("logs", "llm", "--data-dir", str(ours))
    async with pair(model(), operators=Operators(logs=theirs)) as nodes:
        assert (await said(nodes, *arguments))[:2] == (0, "there\n")
        nodes.known.peers = Peers()
        code, out, errors = await said(nodes, *arguments)
        assert (code, out) == (1, "")
        assert "known nodes are node-a" in errors


async def test_events_are_followed_over_the_hop(nodes: Pair) -> None:
    command = await asyncio.create_subprocess_exec(
        XGEN_MODEL,
        *("events", "-f", "--output", "json", "--target", "node-b"),
        *("--server", f"127.0.0.1:{nodes.a.port}"),
        env=environment(),
        stdout=asyncio.subprocess.PIPE,
    )
    assert command.stdout is not None
    try:
        for count in range(3):
            tell(nodes.b.operators, about=f"m{count}")
            assert json.loads(await command.stdout.readline())["model"] == f"m{count}"
    finally:
        os.kill(command.pid, signal.SIGINT)
        await command.wait()


async def test_gpus_are_those_that_the_agent_of_that_node_tells_of(nodes: Pair) -> None:
    assert "node-b has no GPU that its agent knows of" in (await said(nodes, "gpus"))[2]
    held = replace(model(), gpu_ids=(GPU.identity,))
    nodes.b.board.now = replace(nodes.b.board.now, devices=(GPU,), models=(held,))
    code, out, _ = await said(nodes, "gpus")
    assert code == 0
    assert re.search(rf"0 +{GPU.name} .* llm", out)
    listed = json.loads((await said(nodes, "gpus", "--output", "json"))[1])
    assert (listed["node"], listed["gpus"][0]["models"]) == ("node-b", ["llm"])


async def test_whom_to_blame_is_the_node_that_does_not_answer() -> None:
    """And not the agent that was asked for it, which works."""

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nX-Served-By: node-b\r\nContent-Length: 9\r\n\r\nhalf")
        await writer.drain()

    async with beside(cut) as (agent, known):
        (lost,) = known.peers.all
        why, since = "resets the connection", "2026-12-01T12:00:00Z"
        seen = replace(lost, document=b'{"node":"node-b"}', reachable=False)
        known.peers = Peers(all=(replace(seen, because=why, since=since),))
        code, _, errors = await said_through(agent.port, "events")
    assert code == 1
    assert "cannot get an answer from node-b: it broke off through the agent at" in errors
    assert f"which works and has it as not reachable since {since}: it {why}" in errors
    assert "cannot reach an agent" not in errors


async def test_what_the_agent_does_not_have_is_told_with_the_node_that_has_it() -> None:
    async def cut(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with beside(cut) as (agent, known):
        blocked = {"name": "one", "aliases": ["uno"], "state": "blocked", "reason": "no files"}
        (seen,) = known.peers.all
        document = json.dumps({"node": "node-b", "models": [blocked]}).encode()
        known.peers = Peers(all=(replace(seen, document=document),))
        for name in ("one", "uno"):
            code, _, errors = await said_through(agent.port, "logs", name, target=None)
            assert code == 1
            assert f"cannot find model '{name}'" in errors
            assert errors.endswith("; it is on node-b: add --target node-b\n")
        _, _, errors = await said_through(agent.port, "logs", "two", target=None)
        assert "--target" not in errors
        _, out, _ = await said_through(agent.port, "doctor", "--output", "json", target=None)
    (told,) = [each for each in json.loads(out)["checks"] if each["subject"] == "model one"]
    assert told["next"].endswith("then xgen-model reconcile --retry --target node-b")
