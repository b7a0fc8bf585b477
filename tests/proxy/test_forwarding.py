"""What crosses the proxy, over real sockets: bytes as they are, as they come."""

import asyncio
import json
from collections.abc import AsyncIterator

import aiohttp
import pytest

from reconciler.plan.desired import ModelType
from tests.proxy.agent import CHAT, running_agent
from tests.proxy.builders import KEY
from tests.proxy.stand_in import StandIn, StartStandIn


async def test_the_body_arrives_byte_for_byte(llm: StandIn) -> None:
    body = b'  {"model" : "llm", "x": 1.0e0, "\\u0061": "\\u00e9", "x": 2, "unknown": [ ] }\n'
    async with running_agent(llm.as_model()) as agent:
        assert (await agent.chat(body)).status == 200
        assert await llm.last_body() == body


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", f"/api/inference{CHAT}"])
async def test_an_alias_reaches_the_backend_as_its_name(llm: StandIn, path: str) -> None:
    """llama-swap PR#230: an alias was not resolved in one of the paths (scenario 52)."""
    async with running_agent(llm.as_model(aliases=("gpt-4o-mini",))) as agent:
        answer = await agent.chat(b'{"model" : "gpt-4o-mini" , "n":1}', path)
        assert answer.headers["X-Served-By"] == "node-a/llm"
        assert await llm.last_body() == b'{"model" : "llm" , "n":1}'
        assert dict(await llm.last_headers())["content-length"] == "25"


async def test_an_embeddings_alias_is_resolved_too(embedding: StandIn) -> None:
    """llama-swap PR#230 (scenario 52)."""
    model = embedding.as_model("emb", type=ModelType.EMBEDDING, aliases=("ada",))
    async with running_agent(model) as agent:
        for path in ("/v1/embeddings", "/api/inference/embedding/v1/embeddings"):
            assert (await agent.chat({"model": "ada", "input": "x"}, path)).status == 200
            assert json.loads(await embedding.last_body())["model"] == "emb"


async def test_a_body_of_megabytes_arrives_whole(llm: StandIn) -> None:
    image = "A" * (12 << 20)
    body = json.dumps({"model": "llm", "x": [{"model": "decoy"}], "image": image}).encode()
    async with running_agent(llm.as_model()) as agent:
        assert (await agent.chat(body)).status == 200
        assert await llm.last_body() == body


async def test_a_chunked_upload_arrives_whole(llm: StandIn) -> None:
    async with running_agent(llm.as_model()) as agent:
        reader, writer = await agent.connect()
        writer.write(f"POST {CHAT} HTTP/1.1\r\nHost: a\r\n".encode())
        writer.write(b'Transfer-Encoding: chunked\r\n\r\n8\r\n{"model"\r\n')
        await writer.drain()
        writer.write(b'7\r\n:"llm"}\r\n0\r\n\r\n')
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        assert await llm.last_body() == b'{"model":"llm"}'


async def test_the_query_passes_without_what_is_for_us(llm: StandIn) -> None:
    async with running_agent(llm.as_model()) as agent:
        await agent.chat({"model": "llm"}, f"{CHAT}?a=%2f+b&server=node-a&a=2")
        assert await llm.last_target() == f"{CHAT}?a=%2f+b&a=2"


async def test_the_query_may_name_the_model_where_the_body_does_not(llm: StandIn) -> None:
    models = (llm.as_model("a", aliases=("fast",)), llm.as_model("b"))
    async with running_agent(*models) as agent:
        by_query = await agent.chat({"x": 1}, f"{CHAT}?a=1&model=f%61st&b=2")
        assert by_query.headers["X-Served-By"] == "node-a/a"
        assert await llm.last_target() == f"{CHAT}?a=1&b=2"
        both = await agent.chat({"model": "b"}, f"{CHAT}?model=a")
        unknown = await agent.chat({}, f"{CHAT}?model=")
        assert both.headers["X-Served-By"] == "node-a/b"
        assert unknown.error["code"] == "model_not_found"


async def test_the_backend_sees_its_own_key_and_our_request_id(llm: StandIn) -> None:
    sent = {"Authorization": "Bearer mine", "X-Request-Id": "id-7", "X-Custom": "yes"}
    async with running_agent(llm.as_model()) as agent:
        answer = await agent.chat({"model": "llm"}, headers={**sent, "Accept-Encoding": "gzip"})
        seen = dict(await llm.last_headers())
        assert answer.headers["X-Request-Id"] == "id-7"
        assert {k: seen[k] for k in ("authorization", "x-request-id", "x-custom")} == {
            "authorization": f"Bearer {KEY}",
            "x-request-id": "id-7",
            "x-custom": "yes",
        }
        assert seen["accept-encoding"] == "identity"


async def test_hop_by_hop_headers_of_the_backend_stop_here(llm: StandIn) -> None:
    async with running_agent(llm.as_model()) as agent:
        answer = await agent.chat({"model": "llm"})
        assert answer.headers["X-Stand-In"] == "yes"
        assert not {"X-Hop", "Keep-Alive", "Connection"} & set(answer.headers)


async def test_every_answer_says_who_served_it_and_which_request_it_was(llm: StandIn) -> None:
    async with running_agent(llm.as_model()) as agent:
        answers = [await agent.get(path) for path in ("/healthz", "/v1/models", "/nothing")]
        answers.append(await agent.chat({"model": "none"}))
        assert [a.headers["X-Served-By"] for a in answers] == ["node-a"] * 4
        assert len({a.headers["X-Request-Id"] for a in answers}) == 4
        wrong_type = await agent.chat({"model": "llm"}, "/v1/embeddings")
        assert wrong_type.headers["X-Served-By"] == "node-a/llm"


async def test_a_request_id_that_could_forge_a_log_line_is_replaced() -> None:
    async with running_agent() as agent:
        answer = await agent.get("/healthz", headers={"X-Request-Id": "a b" + "x" * 200})
        assert " " not in answer.headers["X-Request-Id"]


async def test_events_pass_as_they_come(stand_in: StartStandIn) -> None:
    backend = stand_in("--chunks", "3", "--chunk-interval", "0.2")
    async with running_agent(backend.as_model()) as agent:
        async with agent.session.post(
            agent.url(CHAT), json={"model": "llm", "stream": True}
        ) as response:
            first = await response.content.readany()
            running_at_first = (await backend.state())["running"]
            rest = await response.read()
        assert response.headers["X-Accel-Buffering"] == "no"
        assert b"token0" in first
        assert b"token2" not in first
        assert running_at_first == 1
        assert rest.endswith(b"data: [DONE]\n\n")


async def test_errors_of_the_backend_pass_as_they_are(llm: StandIn) -> None:
    model = llm.as_model("emb", type=ModelType.EMBEDDING)
    async with running_agent(model) as agent:
        answer = await agent.chat({"model": "emb"}, "/v1/embeddings")
        assert (answer.status, answer.error["code"]) == (404, 404)


async def test_a_client_that_does_not_read_slows_the_backend_down(stand_in: StartStandIn) -> None:
    """No buffering without bound: 256 MiB are offered, and stay where they are."""
    backend = stand_in("--chunks", "256", "--chunk-bytes", str(1 << 20))
    async with running_agent(backend.as_model()) as agent:
        await agent.send_raw({"model": "llm", "stream": True})
        await backend.until(lambda state: state["bytes_sent"] > 0)
        sent, before = 0, -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.2)
            sent = (await backend.state())["bytes_sent"]
        assert sent < 64 << 20
        assert (await backend.state())["running"] == 1


async def test_a_compressed_body_is_415(llm: StandIn) -> None:
    async with running_agent(llm.as_model()) as agent:
        answer = await agent.chat(b"\x1f\x8b", headers={"Content-Encoding": "gzip"})
        assert (answer.status, answer.error["code"]) == (415, "compressed_body")
        identity = {"Content-Encoding": "identity"}
        assert (await agent.chat({"model": "llm"}, headers=identity)).status == 200


async def test_a_body_above_the_limit_is_413_declared_or_not(llm: StandIn) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(3):
            yield b" " * 400

    async with running_agent(llm.as_model(), body_bytes=1000) as agent:
        declared = await agent.chat(b" " * 1001)
        async with agent.session.post(agent.url(CHAT), data=pieces()) as response:
            chunked = await response.json()
        fits = await agent.chat(b'{"model":"llm"}'.ljust(1000))
        assert (declared.status, declared.error["code"]) == (413, "body_too_large")
        assert (response.status, chunked["error"]["code"]) == (413, "body_too_large")
        assert fits.status == 200


async def test_bad_bodies_are_400_in_openais_shape(llm: StandIn) -> None:
    async with running_agent(llm.as_model()) as agent:
        for body, code in ((b"[]", "invalid_json"), (b'{"model":1}', "invalid_model")):
            answer = await agent.chat(body)
            assert (answer.status, answer.error["code"]) == (400, code)
            assert answer.error["type"] == "invalid_request_error"


async def test_a_status_that_changes_changes_the_routes_at_once(llm: StandIn) -> None:
    async with running_agent() as agent:
        before = await agent.chat({"model": "new"})
        agent.board.set(llm.as_model(aliases=("new",)))
        after = await agent.chat({"model": "new"})
        assert (before.status, after.status) == (404, 200)


async def test_fifty_streams_at_once_all_end_whole(stand_in: StartStandIn) -> None:
    backend = stand_in("--chunks", "20", "--chunk-interval", "0.01")

    async with running_agent(backend.as_model()) as agent:
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:

            async def one() -> bytes:
                body = {"model": "llm", "stream": True}
                async with session.post(agent.url(CHAT), json=body) as response:
                    return await response.read()

            answers = await asyncio.gather(*(one() for _ in range(50)))
        assert all(answer.endswith(b"data: [DONE]\n\n") for answer in answers)
        assert all(answer.count(b"token") == 20 for answer in answers)
        assert agent.traffic.total == 0
