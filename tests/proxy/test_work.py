"""What of an answer shows that its engine works, and whom a request waits for."""

import pytest

from reconciler.plan.ids import Nonce
from tests.proxy.agent import CHAT, running_agent
from tests.proxy.raw_engine import saying
from tests.proxy.stand_in import StartStandIn

NONCE = Nonce("nonce-of-llm")
_STREAM = {"model": "llm", "stream": True}
_EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"


async def test_every_byte_of_an_answer_is_counted(stand_in: StartStandIn) -> None:
    async with running_agent(stand_in().as_model()) as agent:
        streamed = await agent.chat(_STREAM)
        assert agent.traffic.relayed_bytes(NONCE) == len(streamed.body)
        whole = await agent.chat({"model": "llm"})
        assert agent.traffic.relayed_bytes(NONCE) == len(streamed.body) + len(whole.body)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"model": "llm", "content": "x"}),
        ("/v1/messages/count_tokens", {"model": "llm"}),
    ],
)
async def test_what_an_engine_says_without_its_model_is_no_work(
    stand_in: StartStandIn, path: str, body: object
) -> None:
    async with running_agent(stand_in().as_model()) as agent:
        assert (await agent.chat(body, path)).body
        assert agent.traffic.relayed_bytes(NONCE) == 0


async def test_errors_are_no_work(stand_in: StartStandIn) -> None:
    """An API server goes on refusing what it is asked after its engine has died."""
    backend = stand_in("--type", "embedding")
    async with running_agent(backend.as_model()) as agent:
        assert (await agent.chat({"model": "llm"})).status == 404
        assert agent.traffic.relayed_bytes(NONCE) == 0


async def test_comments_of_an_engine_are_no_work() -> None:
    """llama.cpp sends one every 30 s from a thread that knows nothing of the model's."""
    async with (
        saying(_EVENTS + b": ping\n\n", b"data: {}\n\n") as (engine, go_on),
        running_agent(engine) as agent,
        agent.session.post(agent.url(CHAT), json=_STREAM) as response,
    ):
        assert await response.content.readany() == b": ping\n\n"
        assert agent.traffic.relayed_bytes(NONCE) == 0
        assert agent.traffic.awaited(NONCE) == 1
        go_on.set()
        assert await response.content.readany() == b"data: {}\n\n"
        assert agent.traffic.relayed_bytes(NONCE) == len(b"data: {}\n\n")


async def test_a_client_that_does_not_read_is_what_its_request_waits_for(
    stand_in: StartStandIn,
) -> None:
    backend = stand_in("--chunks", "256", "--chunk-bytes", str(1 << 20))
    async with running_agent(backend.as_model()) as agent:
        await agent.send_raw(_STREAM)
        await backend.until(lambda state: state["running"] == 1 > agent.traffic.awaited(NONCE))
        assert agent.traffic.in_flight(NONCE) == 1


async def test_a_colon_in_the_middle_of_a_line_begins_no_comment() -> None:
    first, second = b'data: {"id"', b': "1"}\n\n'
    async with (
        saying(_EVENTS + first, second) as (engine, go_on),
        running_agent(engine) as agent,
        agent.session.post(agent.url(CHAT), json=_STREAM) as response,
    ):
        assert await response.content.readany() == first
        go_on.set()
        assert await response.content.readany() == second
        assert agent.traffic.relayed_bytes(NONCE) == len(first + second)
