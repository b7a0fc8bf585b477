"""Events and logs, read once and followed."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from reconciler.events import EventKind
from reconciler.plan.ids import ModelName
from reconciler.proxy.client import Presence
from reconciler.proxy.streams import Streams
from tests.proxy.agent import Agent, running_agent
from tests.proxy.builders import KEY, Operators, model

EVENTS = "/api/management/events"
LOGS = "/api/management/models/llm/logs"


def tell(operators: Operators, count: int = 1, *, about: str = "llm") -> None:
    for number in range(count):
        operators.journal.record(EventKind.ACTION_BEGUN, f"r{number}", model=ModelName(about))


def with_events(count: int) -> Operators:
    operators = Operators()
    tell(operators, count)
    return operators


async def sse(answer: aiohttp.ClientResponse) -> dict[str, str]:
    """The next event of a stream; comments are passed over."""
    fields: dict[str, str] = {}
    while line := (await answer.content.readline()).decode().rstrip("\n"):
        if not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value
    return fields or await sse(answer)


async def follow_once(agent: Agent) -> int:
    async with follow(agent, f"{EVENTS}?follow=true") as answer:
        return int(answer.status)


def follow(agent: Agent, path: str, **headers: str) -> Any:
    return agent.session.get(agent.url(path), headers=headers)


@pytest.mark.parametrize(
    ("query", "seqs"),
    [
        ("", [1, 2, 3, 4, 5]),
        ("?limit=2", [4, 5]),
        ("?since=1&limit=2", [2, 3]),
        ("?since=5", []),
        ("?model=llm", [1, 2, 3, 4, 5]),
        ("?model=alias", [1, 2, 3, 4, 5]),
        ("?model=other", []),
    ],
)
async def test_events_are_read_by_cursor_model_and_limit(query: str, seqs: list[int]) -> None:
    models = model("llm", aliases=("alias",)), model("other")
    async with running_agent(*models, operators=with_events(5)) as agent:
        page = (await agent.get(EVENTS + query)).json
    assert [event["seq"] for event in page["events"]] == seqs


@pytest.mark.parametrize("more", ["", "&follow=true", "&since=0"])
async def test_events_of_what_never_was_here_are_404_with_the_nearest_names(more: str) -> None:
    operators = Operators()
    tell(operators, about="llm-old")
    async with running_agent(model("llm-new"), operators=operators) as agent:
        answer = await agent.get(f"{EVENTS}?model=lm-old{more}")
    assert (answer.status, answer.error["code"]) == (404, "model_not_found")
    assert "nearest: llm-old; this node knows llm-new, llm-old" in answer.error["message"]


async def test_events_of_a_model_that_is_gone_can_be_read() -> None:
    operators = Operators()
    tell(operators, 2, about="gone")
    async with running_agent(model("llm"), operators=operators) as agent:
        page = (await agent.get(f"{EVENTS}?model=gone")).json
    assert [event["seq"] for event in page["events"]] == [1, 2]


async def test_a_follower_of_one_model_comes_back_to_an_agent_that_knows_none_yet() -> None:
    async with running_agent() as agent:
        path = f"{EVENTS}?model=llm&follow=true"
        async with follow(agent, path, **{"Last-Event-ID": "another-run:7"}) as answer:
            tell(agent.operators, about="other")
            tell(agent.operators)
            event = json.loads((await sse(answer))["data"])
    assert event["model"] == "llm"


async def test_pages_follow_each_other_by_next() -> None:
    async with running_agent(operators=with_events(5)) as agent:
        seqs: list[int] = []
        cursor = "0"
        while events := (page := (await agent.get(f"{EVENTS}?since={cursor}&limit=2")).json)[
            "events"
        ]:
            seqs += [event["seq"] for event in events]
            cursor = f"{page['run']}:{page['next']}"
    assert seqs == [1, 2, 3, 4, 5]


async def test_an_event_has_its_documented_shape() -> None:
    async with running_agent(operators=with_events(1)) as agent:
        (event,) = (await agent.get(EVENTS)).json["events"]
    assert event == {
        "seq": 1,
        "time": "t",
        "kind": "ActionBegun",
        "level": "info",
        "node": "node-a",
        "model": "llm",
        "reason": "r0",
        "data": {},
    }


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=x", "since=x", "sinse=1"])
async def test_bad_parameters_are_refused(query: str) -> None:
    async with running_agent() as agent:
        answer = await agent.get(f"{EVENTS}?{query}")
    assert (answer.status, answer.error["code"]) == (400, "invalid_parameter")


async def test_a_follower_gets_the_past_and_then_what_comes() -> None:
    async with (
        running_agent(operators=with_events(2)) as agent,
        follow(agent, f"{EVENTS}?follow=true") as answer,
    ):
        assert answer.headers["content-type"] == "text/event-stream"
        past = [json.loads((await sse(answer))["data"])["seq"] for _ in range(2)]
        tell(agent.operators, about="other")
        coming = await sse(answer)
    assert past == [1, 2]
    assert json.loads(coming["data"])["model"] == "other"
    assert coming["id"] == f"{agent.operators.journal.run}:3"


async def test_a_follower_that_comes_back_goes_on_where_it_was() -> None:
    async with running_agent(operators=with_events(3)) as agent:
        last = f"{agent.operators.journal.run}:2"
        async with follow(agent, f"{EVENTS}?follow=true", **{"Last-Event-ID": last}) as answer:
            event = json.loads((await sse(answer))["data"])
    assert event["seq"] == 3


async def test_a_follower_that_was_away_for_long_hears_what_it_missed() -> None:
    async with (
        running_agent(operators=with_events(1010)) as agent,
        follow(agent, f"{EVENTS}?follow=true&since=5") as answer,
    ):
        first = await sse(answer)
    assert first == {"event": "missed", "data": '{"missed":5}'}


async def test_a_follower_ends_with_the_agent() -> None:
    async with running_agent() as agent:
        async with follow(agent, f"{EVENTS}?follow=true") as answer:
            agent.stop.set()
            assert await answer.content.read() == b""
        await agent.server


async def test_followers_are_few_and_their_places_come_free() -> None:
    async with running_agent() as agent:
        held = [await agent.session.get(agent.url(f"{EVENTS}?follow=true")) for _ in range(64)]
        refused = await agent.get(f"{EVENTS}?follow=true")
        assert (refused.status, refused.error["code"]) == (503, "too_many_followers")
        for answer in held:
            answer.close()
        async with asyncio.timeout(20):
            while (
                answer := await agent.session.get(agent.url(f"{EVENTS}?follow=true"))
            ).status == 503:
                answer.close()
        answer.close()


async def test_a_follower_whose_body_nobody_reads_is_missed_when_it_leaves() -> None:
    operators = with_events(1)
    async with running_agent(operators=operators) as agent:
        body = b"x" * 300_000
        for _ in range(100):  # more than there are places
            reader, writer = await agent.connect()
            head = f"GET {EVENTS}?follow=true HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}"
            writer.write(head.encode() + b"\r\n\r\n" + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 200 ")
            writer.transport.abort()


async def test_a_quiet_stream_says_that_it_lives() -> None:
    sent: list[bytes] = []
    lives = asyncio.Event()

    async def send(message: Any) -> None:
        sent.append(message.get("body", b""))
        if sent.count(b": ping\n\n") == 2:
            lives.set()

    async def nothing() -> Any:
        await asyncio.Event().wait()
        yield b""

    ending = asyncio.Event()
    streams = Streams(ending, heartbeat_seconds=0.01)
    sending = asyncio.create_task(
        streams.send(
            {"type": "http", "method": "GET", "state": {"presence": Presence()}},
            send,
            content_type=b"text/event-stream",
            chunks=nothing(),
            heartbeat=b": ping\n\n",
        )
    )
    await asyncio.wait_for(lives.wait(), 20)
    ending.set()
    assert await asyncio.wait_for(sending, 20) is None


async def test_a_log_is_read_without_the_backends_key(tmp_path: Path) -> None:
    (tmp_path / "llm.log").write_text(f"one\ntwo {KEY}\nthree\n")
    async with running_agent(model("llm"), operators=Operators(logs=tmp_path)) as agent:
        answer = await agent.get(f"{LOGS}?lines=2")
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert answer.body == b"two ***\nthree\n"


async def test_a_log_is_followed_until_its_model_is_gone(tmp_path: Path) -> None:
    log = tmp_path / "llm.log"
    log.write_text("one\n")
    async with (
        running_agent(model("llm"), operators=Operators(logs=tmp_path)) as agent,
        follow(agent, f"{LOGS}?follow=true") as answer,
    ):
        assert await answer.content.readline() == b"one\n"
        with log.open("a") as file:
            file.write("two\n")
        assert await answer.content.readline() == b"two\n"
        agent.board.set()
        assert await answer.content.read() == b""


async def test_a_model_that_never_ran_has_an_empty_log() -> None:
    async with running_agent(model("llm")) as agent:
        answer = await agent.get(LOGS)
    assert (answer.status, answer.body) == (200, b"")
