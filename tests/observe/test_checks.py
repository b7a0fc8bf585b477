"""A check passes on the right answer alone, and says what was expected and what came."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from reconciler.observe.checks import Failed, Unanswered, run_check
from reconciler.plan.checks import (
    Check,
    EmbeddingCheck,
    RerankCheck,
    TextCheck,
    TranscriptionCheck,
)
from tests.apply.world import KEY, launch

Outcome = Unanswered | Failed | None
COMPLETION = TextCheck(
    text="The capital of France is", chat=False, contains=("Paris",), max_tokens=8
)
CHAT = TextCheck(text="Capital of France?", chat=True, contains=("Paris", "PARIS"), max_tokens=8)
EMBEDDING = EmbeddingCheck(text="hello", embedding=(1.0, 0.0), cosine=0.99)
RERANK = RerankCheck(query="colour of grass", first="green", others=("red", "blue"))


@dataclass
class Asked:
    """The request that came."""

    path: str = ""
    body: bytes = b""


@asynccontextmanager
async def engine(body: object, status: int = 200) -> AsyncIterator[tuple[int, Asked]]:
    """Answers so, whatever it is asked."""
    asked = Asked()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = head.lower().partition("content-length:")[2].split()
        asked.path = head.split()[1]
        if length:
            asked.body = await reader.readexactly(int(length[0]))
        else:
            asked.body = await reader.readuntil(b"\r\n0\r\n\r\n")
        content = json.dumps(body).encode()
        start = b"HTTP/1.1 %d X\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        writer.write(start % (status, len(content)) + content)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
        yield listening.sockets[0].getsockname()[1], asked


async def ask(port: int, check: Check, seconds: float = 30.0) -> Outcome:
    async with aiohttp.ClientSession() as session:
        return await run_check(
            session, launch(mark="", port=port), check, served_name="x", seconds=seconds
        )


async def asked_with(check: Check, body: object, status: int = 200) -> Outcome:
    async with engine(body, status) as (port, _):
        return await ask(port, check)


def text(content: str) -> dict[str, Any]:
    return {"choices": [{"text": content}]}


def message(**fields: str | None) -> dict[str, Any]:
    return {"choices": [{"message": fields}]}


def vector(*numbers: float | None) -> dict[str, Any]:
    return {"data": [{"embedding": list(numbers)}]}


def scores(*numbers: float | None) -> dict[str, Any]:
    """Of the texts in the order in which they were sent."""
    listed = [{"index": at, "relevance_score": number} for at, number in enumerate(numbers)]
    return {"results": listed}


@pytest.mark.parametrize(
    ("check", "body"),
    [
        (COMPLETION, text(" Paris, and")),
        (CHAT, message(content="It is PARIS.")),
        (EMBEDDING, vector(3.0, 0.1)),
        (RERANK, scores(-4.0, -9.5, -3.9)),
    ],
)
async def test_the_right_answer_will_do(check: Check, body: object) -> None:
    assert await asked_with(check, body) is None


PROMPT = "the prompt 'The capital of France is' should give 'Paris'"
MESSAGE = "the message 'Capital of France?' should give 'Paris' or 'PARIS'"
HELLO = "the embedding of 'hello' should have a cosine of at least 0.99 to the one expected"
GREEN = "the query 'colour of grass' should rank 'green' first"


@pytest.mark.parametrize(
    ("check", "body", "said"),
    [
        (COMPLETION, text(" paris"), f"{PROMPT}; what came: ' paris'"),
        (COMPLETION, text(""), f"{PROMPT}; what came: no text"),
        (COMPLETION, text("ab" * 500), f"{PROMPT}; what came: '{'ab' * 38}..."),
        (COMPLETION, [1], f"{PROMPT}; what came: no text"),
        (CHAT, message(content="Lyon"), f"{MESSAGE}; what came: 'Lyon'"),
        (
            CHAT,
            message(content=None, reasoning_content="Paris is"),
            f"{MESSAGE}; what came: reasoning alone; give it more max_tokens",
        ),
        (EMBEDDING, vector(0.6, 0.8), f"{HELLO}; what came: 0.6000"),
        (
            EMBEDDING,
            vector(1.0),
            f"{HELLO}; what came: an embedding of 1 numbers, not 2",
        ),
        (EMBEDDING, vector(0.0, 0.0), f"{HELLO}; what came: an embedding of zeros"),
        (EMBEDDING, vector(1.0, None), f"{HELLO}; what came: no embedding"),
        (EMBEDDING, vector(), f"{HELLO}; what came: no embedding"),
        (RERANK, scores(0.1, 0.75, 0.5), f"{GREEN}; what came: 0.5 for it, and 0.75 for 'blue'"),
        (RERANK, scores(0.5, 0.5, 0.5), f"{GREEN}; what came: 0.5 for it, and 0.5 for 'red'"),
        (RERANK, scores(0.5, 0.75), f"{GREEN}; what came: no score for each of the texts"),
        (RERANK, scores(0.5, None, 0.75), f"{GREEN}; what came: no score for each of the texts"),
    ],
)
async def test_another_answer_is_told_beside_what_was_expected(
    check: Check, body: object, said: str
) -> None:
    outcome = await asked_with(check, body)

    assert outcome == Failed(reason=said)


async def test_a_refusal_is_told_without_the_key() -> None:
    outcome = await asked_with(CHAT, {"error": {"message": f"no template; key {KEY}"}}, status=400)

    assert outcome == Failed(reason=f"{MESSAGE}; what came: '400 no template; key ***'")


@pytest.mark.parametrize("status", [429, 503])
async def test_a_busy_engine_is_asked_again(status: int) -> None:
    outcome = await asked_with(CHAT, {"error": {"message": "later"}}, status=status)

    assert outcome == Unanswered(reason=f"{status} later")


async def test_a_closed_port_is_the_end_of_the_process_to_tell_of() -> None:
    async with engine({}) as (port, _):
        pass

    assert await ask(port, CHAT) == Unanswered(reason=f"port {port} is not open yet")


async def test_an_answer_has_its_time_and_no_more() -> None:
    left = asyncio.Event()

    async def never(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()
        await writer.wait_closed()
        left.set()

    async with await asyncio.start_server(never, "127.0.0.1", 0) as listening:
        outcome = await ask(listening.sockets[0].getsockname()[1], CHAT, seconds=0.1)
        await left.wait()

    assert outcome == Failed(reason=f"{MESSAGE}; what came: nothing came within 0.1 s")


@pytest.mark.parametrize("check", [COMPLETION, CHAT])
async def test_sampling_is_deterministic(check: TextCheck) -> None:
    async with engine(text("")) as (port, asked):
        await ask(port, check)

    body = json.loads(asked.body)
    assert (body["temperature"], body["seed"], body["max_tokens"]) == (0, 0, 8)
    assert body["model"] == "x"


async def test_the_expected_text_is_not_sent_first() -> None:
    """An engine that leaves the order as it is must not pass."""
    async with engine(scores(0, 0, 1)) as (port, asked):
        assert await ask(port, RERANK) is None

    assert json.loads(asked.body)["documents"] == ["red", "blue", "green"]


async def test_a_vector_in_a_file_counts(tmp_path: Path) -> None:
    file = tmp_path / "hello.json"
    file.write_text("[1, 0]")
    check = EmbeddingCheck(text="hello", file=str(file), cosine=0.99)

    assert await asked_with(check, vector(2.0, 0.0)) is None
    assert isinstance(await asked_with(check, vector(0.0, 2.0)), Failed)


@pytest.mark.parametrize("content", ["", "{}", "[]", "[0, 0.0]", "[1, null]", "[true]", "[1e999]"])
async def test_a_file_without_a_vector_fails_the_check(tmp_path: Path, content: str) -> None:
    file = tmp_path / "hello.json"
    file.write_text(content)
    check = EmbeddingCheck(text="hello", file=str(file), cosine=0.99)

    said = f"cannot use {file}: it is no JSON list of numbers, not all 0"
    assert await asked_with(check, vector(1.0, 0.0)) == Failed(reason=said)


async def test_a_file_that_is_gone_fails_the_check(tmp_path: Path) -> None:
    check = EmbeddingCheck(text="hello", file=str(tmp_path / "none.json"), cosine=0.99)

    said = f"cannot read {tmp_path / 'none.json'}: no such file or directory"
    assert await asked_with(check, vector(1.0, 0.0)) == Failed(reason=said)


async def test_speech_is_sent_as_a_form(tmp_path: Path) -> None:
    file = tmp_path / "hello.wav"
    file.write_bytes(b"RIFF of speech")
    check = TranscriptionCheck(file=str(file), contains=("hello",))

    async with engine({"text": "Oh, hello."}) as (port, asked):
        assert await ask(port, check) is None
    assert b"RIFF of speech" in asked.body
    assert asked.path == "/v1/audio/transcriptions"

    said = "hello.wav should be heard as 'hello'; what came: no text"
    assert await asked_with(check, {"text": ""}) == Failed(reason=said)
