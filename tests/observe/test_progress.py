"""What an engine's own page says of its work, and every way in which it may say nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import aiohttp
import pytest

from reconciler.backend.launch import Counters, Launch
from reconciler.backend.llama_options import COUNTERS
from reconciler.observe.engine_pages import EnginePages
from reconciler.observe.progress import Progress, Untold, progress_of, read_progress
from tests.apply.world import KEY, launch
from tests.observe.test_readiness import stand_in

VLLM = Counters(
    metrics_path="/metrics",
    prompt_tokens="vllm:prompt_tokens_total",
    generated_tokens="vllm:generation_tokens_total",
    running="vllm:num_requests_running",
    waiting="vllm:num_requests_waiting",
    kv_usage="vllm:kv_cache_usage_perc",
)
VLLM_PAGE = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a, b{}"} 3.0
vllm:num_requests_running{engine="1",model_name="a, b{}"} 1.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="a, b{}"} 0.0
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{engine="0",reason="capacity"} 7.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="a, b{}"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="a, b{}"} 0.5
# TYPE vllm:prompt_tokens_total counter
vllm:prompt_tokens_total{engine="0",model_name="a, b{}"} 1.5e+06
vllm:prompt_tokens_total{engine="1",model_name="a, b{}"} 2.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="a, b{}"} 44.0
"""


def asked(port: int, *, api_key: str = KEY, counters: Counters = COUNTERS) -> Launch:
    return replace(launch(mark="", port=port, api_key=api_key), counters=counters)


async def look(backend: Launch, *, seconds: float = 5.0) -> Progress | Untold:
    async with EnginePages(answer_seconds=seconds) as pages:
        return await read_progress(pages, backend)


@asynccontextmanager
async def raw_server(answer: bytes) -> AsyncIterator[int]:
    """Gives these bytes to whatever it is asked, and hangs up."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        yield listening.sockets[0].getsockname()[1]


async def test_a_page_says_how_far_its_engine_is() -> None:
    async with stand_in("--chunks", "5") as port:
        before = await look(asked(port))
        async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as session:
            for _ in range(2):
                url = f"http://127.0.0.1:{port}/v1/chat/completions"
                async with session.post(url, json={"model": "x"}) as answer:
                    await answer.read()
        after = await look(asked(port))
    assert before == Progress(prompt_tokens=0, generated_tokens=0, running=0, waiting=0)
    assert after == Progress(prompt_tokens=2, generated_tokens=10, running=0, waiting=0)


async def test_a_page_that_never_comes_is_given_up_in_time() -> None:
    async with stand_in("--hang-metrics") as port:
        found = await look(asked(port), seconds=0.2)
    assert isinstance(found, Untold)
    assert found.reason.endswith("nothing whole came within 0.2 s")


async def test_a_page_that_needs_another_key_tells_nothing() -> None:
    async with stand_in() as port:
        found = await look(asked(port, api_key="another"))
    assert isinstance(found, Untold)
    assert "401" in found.reason


async def test_a_backend_that_is_gone_tells_nothing() -> None:
    async with raw_server(b"") as port:
        pass
    assert isinstance(await look(asked(port)), Untold)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"no HTTP at all\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\nllamacpp:prompt_tokens_total 1\n",
        b"HTTP/1.1 302 Found\r\nLocation: /metrics\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nllamacpp:prompt_tokens_total many\n",
        b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n<html>welcome</html>",
    ],
    ids=["hung-up", "no-http", "cut", "redirected", "no-number", "no-page"],
)
async def test_what_is_no_page_is_a_reason_and_no_exception(answer: bytes) -> None:
    async with raw_server(answer) as port:
        found = await look(asked(port))
    assert isinstance(found, Untold)
    assert found.reason.startswith("cannot ")


async def test_an_engine_that_counts_nothing_is_not_asked() -> None:
    found = await look(asked(1, counters=Counters()))
    assert found == Untold(reason="this engine counts nothing", uncounted=True)


def test_the_parts_of_an_engine_are_summed_and_the_fullest_cache_counts() -> None:
    assert progress_of(VLLM_PAGE, VLLM) == Progress(
        prompt_tokens=1_500_002, generated_tokens=44, running=4, waiting=0, kv_usage=0.5
    )


def test_a_count_that_this_version_does_not_have_is_none() -> None:
    page = "llamacpp:prompt_tokens_total 7\r\nllamacpp:prompt_tokens_total_more 1\r\n"
    assert progress_of(page, COUNTERS) == Progress(prompt_tokens=7)


@pytest.mark.parametrize("value", ["NaN", "+Inf"])
def test_a_count_that_is_no_finite_number_is_not_believed(value: str) -> None:
    found = progress_of(f"llamacpp:prompt_tokens_total {value}\n", COUNTERS)
    assert isinstance(found, Untold)
