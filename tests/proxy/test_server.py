"""uvicorn in our loop: it stops when told, and bounds what a client may send before a request."""

import asyncio
import signal

import pytest

from tests.proxy.agent import running_agent
from tests.proxy.stand_in import StartStandIn
from tests.proxy.wire import chat


async def test_installs_no_signal_handlers() -> None:
    before = [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)]
    async with running_agent() as agent:
        await agent.get("/healthz")
        assert [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)] == before


async def test_lets_answers_end_and_takes_no_new_connections(stand_in: StartStandIn) -> None:
    backend = stand_in("--chunks", "10", "--chunk-interval", "0.05")
    async with running_agent(backend.as_model()) as agent:
        running = asyncio.create_task(agent.chat({"model": "llm", "stream": True}))
        await backend.until_running(1)
        agent.stop.set()
        answer = await running
        assert answer.body.endswith(b"data: [DONE]\n\n")
        await agent.until_refused()


async def test_closes_what_outlasts_the_grace(stand_in: StartStandIn) -> None:
    backend = stand_in("--hang")
    async with running_agent(backend.as_model(), grace_seconds=0.1) as agent:
        reader, _ = await agent.send_raw({"model": "llm"})
        await backend.until_running(1)
        agent.stop.set()
        assert (await reader.read()).startswith(b"HTTP/1.1 502 ")
        assert (await backend.until_running(0))["cancelled"] == 1


async def _write_for_ever(writer: asyncio.StreamWriter) -> None:
    while True:
        writer.write(b"x" * 4096)
        await writer.drain()


async def test_an_endless_head_is_cut_off() -> None:
    async with running_agent(linger_seconds=0.1) as agent:
        _, writer = await agent.connect()
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Long: ")
        with pytest.raises(ConnectionError):
            await _write_for_ever(writer)


async def test_many_requests_on_one_connection_are_not_taken_for_an_endless_head() -> None:
    async with running_agent() as agent:
        reader, writer = await agent.connect()
        for _ in range(20):
            writer.write(
                b"GET /healthz HTTP/1.1\r\nHost: a\r\nX-Long: " + b"x" * 8192 + b"\r\n\r\n"
            )
            await reader.readuntil(b'{"status":"ok"}')


@pytest.mark.parametrize(
    "begun",
    [b"", b"GET / HTTP/1.1\r\n", chat(b"{", length=9)],
)
async def test_a_request_that_stops_arriving_is_given_up(begun: bytes) -> None:
    async with running_agent(arrival_seconds=0.1) as agent:
        reader, writer = await agent.connect()
        writer.write(begun)
        assert await reader.read() == b""


async def test_an_offer_of_http2_is_passed_over(stand_in: StartStandIn) -> None:
    """Java's HttpClient makes it with every request; uvicorn would wait for ever for the body."""
    backend = stand_in()
    body = b'{"model":"llm","x":"\\r\\nUpgrade: h2c"}'
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\n"
        f"Upgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    async with running_agent(backend.as_model()) as agent:
        reader, writer = await agent.connect()
        for _ in range(2):
            writer.write(head.encode())
            await writer.drain()
            writer.write(body)
            assert await reader.readuntil(b"\r\n") == b"HTTP/1.1 200 OK\r\n"
            await reader.readuntil(b'"total_tokens": 1}}')
        assert await backend.last_body() == body
        assert "http2-settings" not in dict(await backend.last_headers())


async def test_only_the_head_of_a_request_can_offer_anything() -> None:
    body = b"{}\r\nUpgrade: h2c\r\n\r\n"
    async with running_agent() as agent:
        reader, writer = await agent.connect()
        head = (
            b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n"
            b"Content-Length: %d\r\n\r\n"
        )
        writer.write(head % len(body))
        await reader.readuntil(b"100 Continue\r\n\r\n")
        writer.write(body)
        await reader.readuntil(b'"code":"invalid_json"')


async def test_a_second_request_that_stops_arriving_is_given_up_too() -> None:
    async with running_agent(arrival_seconds=0.1) as agent:
        reader, writer = await agent.connect()
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
        await reader.readuntil(b'{"status":"ok"}')
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: a\r\n")
        assert await reader.read() == b""


async def test_an_answer_may_take_longer_than_its_request(stand_in: StartStandIn) -> None:
    backend = stand_in("--first-byte-after", "0.4")
    async with running_agent(backend.as_model(), arrival_seconds=0.1) as agent:
        assert (await agent.chat({"model": "llm"})).status == 200


async def test_a_cancelled_server_lets_go_of_its_port_and_its_requests(
    stand_in: StartStandIn,
) -> None:
    backend = stand_in("--hang")
    async with running_agent(backend.as_model()) as agent:
        reader, _ = await agent.send_raw({"model": "llm"})
        await backend.until_running(1)
        agent.server.cancel()
        assert await reader.read() == b""
        await agent.until_refused()
        assert (await backend.until_running(0))["cancelled"] == 1


async def test_a_client_that_does_not_read_cannot_keep_the_server(stand_in: StartStandIn) -> None:
    backend = stand_in("--chunks", "256", "--chunk-bytes", str(1 << 20))
    async with running_agent(backend.as_model(), grace_seconds=0.1) as agent:
        await agent.send_raw({"model": "llm", "stream": True})
        await backend.until(lambda state: state["bytes_sent"] > 1 << 20)
        agent.stop.set()
        await agent.server
        assert (await backend.until_running(0))["cancelled"] == 1


async def test_an_answer_that_an_end_cuts_says_so_before_its_connection_closes(
    stand_in: StartStandIn,
) -> None:
    """As with --on-exit leave, where the backend goes on."""
    backend = stand_in("--chunks", "100000", "--chunk-interval", "0.05")
    async with running_agent(backend.as_model(), grace_seconds=0.1) as agent:
        reader, _ = await agent.send_raw({"model": "llm", "stream": True})
        await reader.readuntil(b"data: ")
        plain, _ = await agent.send_raw({"model": "llm"})
        await backend.until_running(2)
        agent.stop.set()
        last = (await reader.read()).rpartition(b"data: ")[2]
        assert b'"code":"backend_lost"' in last.replace(b" ", b"")
        assert (await plain.read()).startswith(b"HTTP/1.1 502 ")
        await agent.server
