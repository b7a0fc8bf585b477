import asyncio
import io
import os
import re
import subprocess
import sys
import wave
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

import aiohttp
import pytest

from reconciler.backend.launch import Launch
from reconciler.backend.questions import probe as hearing
from reconciler.observe.readiness import NotYet, Ready, probe
from reconciler.plan.desired import ModelType
from reconciler.plan.ids import ModelName
from tests.apply.world import KEY, STAND_IN, launch

Ask = Callable[[Launch], Awaitable[NotYet | Ready]]


@pytest.fixture
async def ask() -> AsyncIterator[Ask]:
    async with aiohttp.ClientSession() as session:

        def once(asked: Launch) -> Awaitable[NotYet | Ready]:
            return probe(session, asked, first_answer_seconds=0.5)

        yield once


@asynccontextmanager
async def stand_in(*flags: str) -> AsyncIterator[int]:
    """The port of a real one."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(STAND_IN),
        "--name",
        "x",
        *flags,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={"PATH": os.environ["PATH"], "LLAMA_API_KEY": KEY},
    )
    try:
        assert process.stdout is not None
        line = await process.stdout.readline()
        yield int(line.rpartition(b":")[2])
    finally:
        process.kill()
        await process.wait()


@asynccontextmanager
async def server(*bodies: str) -> AsyncIterator[int]:
    """Answers with 200 and these bodies, in this order, whatever it is asked."""
    rest = list(bodies)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = rest.pop(0).encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        writer.write(body)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
        yield listening.sockets[0].getsockname()[1]


MODELS = '{"data": [{"id": "x"}]}'


async def test_a_closed_port_is_loading(ask: Ask) -> None:
    async with server() as port:
        pass

    assert await ask(launch(mark="", port=port)) == NotYet(
        reason=f"health: port {port} is not open yet"
    )


async def test_503_is_loading(ask: Ask) -> None:
    async with stand_in("--ready-after", "3600") as port:
        assert await ask(launch(mark="", port=port)) == NotYet(reason="health: 503 Loading model")


@pytest.mark.parametrize("kind", [ModelType.LLM, ModelType.EMBEDDING])
async def test_a_real_answer_of_its_type_is_ready(ask: Ask, kind: ModelType) -> None:
    async with stand_in("--type", kind) as port:
        assert await ask(launch(mark="", port=port, kind=kind)) == Ready()


async def test_healthy_without_an_answer_is_not_ready(ask: Ask) -> None:
    """Scenarios 4 and 59: vllm#19849, production-stack#619."""
    async with stand_in("--hang") as port:
        outcome = await ask(launch(mark="", port=port))

    assert outcome == NotYet(reason="first answer: nothing came within 0.5 s")


async def test_an_answer_of_another_type_is_not_ready(ask: Ask) -> None:
    """Scenario 54: gpustack#2408."""
    async with stand_in("--type", "embedding") as port:
        outcome = await ask(launch(mark="", port=port))

    assert outcome == NotYet(reason="first answer: 404 this server is not of type llm")


async def test_another_served_name_is_another_server(ask: Ask) -> None:
    """Scenario 23: gpustack#3086."""
    async with stand_in() as port:
        outcome = await ask(launch(mark="", port=port, name="y"))

    assert outcome == NotYet(
        reason=f"another server seems to answer on port {port}: it serves x, not y"
    )


async def test_a_server_that_refuses_the_key_is_another_server(ask: Ask) -> None:
    """Scenario 23: gpustack#3086: the model's own process of an earlier spawn, say."""
    async with stand_in() as port:
        outcome = await ask(launch(mark="", port=port, api_key="of this spawn"))

    assert outcome == NotYet(
        reason=f"another server seems to answer on port {port}: it refuses this backend's key"
    )


@pytest.mark.parametrize(
    ("kind", "body", "ready"),
    [
        (ModelType.LLM, '{"choices": [{}]}', True),
        (ModelType.LLM, '{"choices": []}', False),
        (ModelType.LLM, "no JSON", False),
        (ModelType.EMBEDDING, '{"data": [{"embedding": [0.5]}]}', True),
        (ModelType.EMBEDDING, '{"data": [{"embedding": []}]}', False),
        (ModelType.RERANK, '{"results": [{"index": 0, "relevance_score": -0.5}]}', True),
        (ModelType.RERANK, '{"results": [{"index": 0, "relevance_score": null}]}', False),
        (ModelType.RERANK, '{"results": [{"index": 0}]}', False),
        (ModelType.RERANK, '{"results": [{"relevance_score": 1}, 1]}', False),
        (ModelType.RERANK, '{"results": [{"relevance_score": 1e999}]}', False),
        (ModelType.RERANK, '{"results": []}', False),
        (ModelType.RERANK, '{"results": null}', False),
        (ModelType.TRANSCRIPTION, '{"text": ""}', True),
        (ModelType.TRANSCRIPTION, "{}", False),
    ],
)
async def test_an_answer_counts_by_what_is_in_it(
    ask: Ask, kind: ModelType, body: str, ready: bool
) -> None:
    asked = launch(mark="", port=1)
    asked = replace(asked, probe=replace(asked.probe, type=kind))
    async with server("ok", MODELS, body) as port:
        outcome = await ask(replace(asked, port=port))

    missing = NotYet(reason=f"first answer: 200, but nothing of type {kind} in it")
    assert outcome == (Ready() if ready else missing)


async def test_one_that_hears_is_asked_by_a_form_with_a_file(ask: Ask) -> None:
    """Of the size that its header says, and of nothing but silence."""
    heard: list[bytes] = []
    rest = ["ok", MODELS, '{"text": ""}']

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"Content-Length: (\d+)", head)
        heard.append(head + await reader.readexactly(int(length[1]) if length else 0))
        body = rest.pop(0).encode()
        writer.write(
            b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
        )
        writer.write(body)
        await writer.drain()
        writer.close()

    asked = launch(mark="", port=1)
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        questions = hearing(ModelName("x"), ModelType.TRANSCRIPTION)
        assert await ask(replace(asked, port=port, probe=questions)) == Ready()

    form = heard[-1]
    assert form.startswith(b"POST /v1/audio/transcriptions ")
    assert b"Content-Type: multipart/form-data; boundary=" in form
    assert b'name="model"\r\n\r\nx\r\n' in form
    assert b'name="file"; filename="a.wav"' in form
    with wave.open(io.BytesIO(form[form.index(b"RIFF") :])) as sound:
        assert (sound.getframerate(), sound.getnchannels(), sound.getsampwidth()) == (16000, 1, 2)
        assert set(sound.readframes(sound.getnframes())) == {0}
        assert sound.getnframes() == 16000


@pytest.mark.parametrize("listing", ["[]", '{"data": null}', '{"data": [1, {"id": 2}]}', "no JSON"])
async def test_a_list_of_models_in_another_shape_is_another_server(ask: Ask, listing: str) -> None:
    async with server("ok", listing) as port:
        outcome = await ask(launch(mark="", port=port))

    assert outcome == NotYet(
        reason=f"another server seems to answer on port {port}: it serves nothing, not x"
    )


async def test_a_connection_that_breaks_is_not_ready(ask: Ask) -> None:
    async with stand_in("--reset-before-first-byte") as port:
        outcome = await ask(launch(mark="", port=port))

    assert isinstance(outcome, NotYet)
    assert outcome.reason.startswith("first answer: the connection broke")
