"""Multipart forms over real sockets: on disk where they are large, and streamed on."""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tests.proxy.agent import Agent, Answer, running_agent
from tests.proxy.forms import CONTENT_TYPE, form, part
from tests.proxy.stand_in import StandIn, StartStandIn

PATH = "/v1/audio/transcriptions"
_SMALL, _LARGE = b"RIFF" + b"\0" * 100, os.urandom(3 << 20)


def _form(audio: bytes, *, name: str | None = "llm", **fields: str) -> bytes:
    """The file first, as some clients write it."""
    parts = [part("file", audio, "Content-Type: audio/wav\r\n", filename="a.wav")]
    if name is not None:
        parts.append(part("model", name.encode()))
    return form(*parts, *(part(key, value.encode()) for key, value in fields.items()))


async def _send(agent: Agent, body: bytes, path: str = PATH) -> Answer:
    return await agent.chat(body, path, headers=CONTENT_TYPE)


Held = Callable[[], int]


@pytest.fixture
def held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Held:
    """How many forms are on disk; their files have no names."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def count() -> int:
        found = 0
        for fd in os.listdir("/proc/self/fd"):
            with suppress(OSError):  # it was closed just now
                found += os.readlink(f"/proc/self/fd/{fd}").startswith(str(tmp_path))
        return found

    return count


@pytest.mark.parametrize("audio", [_SMALL, _LARGE], ids=["small", "large"])
async def test_a_form_arrives_byte_for_byte(llm: StandIn, held: Held, audio: bytes) -> None:
    sent = _form(audio, language="en")
    async with running_agent(llm.as_model()) as agent:
        answer = await _send(agent, sent)
        assert answer.json == {"text": "token0 token1 token2 "}
        assert answer.headers["X-Served-By"] == "node-a/llm"
        assert await llm.last_body() == sent
        assert dict(await llm.last_headers())["content-length"] == str(len(sent))
        assert held() == 0


@pytest.mark.parametrize("audio", [_SMALL, _LARGE], ids=["small", "large"])
async def test_an_alias_in_a_form_reaches_the_engine_as_its_name(
    llm: StandIn, audio: bytes
) -> None:
    """llama-swap PR#230: an alias was not resolved in one of the paths (scenario 52)."""
    async with running_agent(llm.as_model(aliases=("whisper-1",))) as agent:
        sent = _form(audio, name="whisper-1", prompt="whisper-1")
        assert (await _send(agent, sent, f"/api/inference{PATH}")).status == 200
        assert await llm.last_body() == _form(audio, name="llm", prompt="whisper-1")


async def test_a_form_without_a_model_goes_to_the_only_one_or_to_the_querys(
    llm: StandIn,
) -> None:
    async with running_agent(llm.as_model("a"), llm.as_model("b")) as agent:
        unnamed = await _send(agent, _form(_SMALL, name=None))
        by_query = await _send(agent, _form(_SMALL, name=None), f"{PATH}?model=b")
        assert unnamed.error["code"] == "model_required"
        assert by_query.headers["X-Served-By"] == "node-a/b"


async def test_a_form_may_ask_for_a_stream(stand_in: StartStandIn) -> None:
    backend = stand_in("--first-byte-after", "0.3")
    async with running_agent(backend.as_model(), settings={"heartbeat_seconds": 0.02}) as agent:
        answer = await _send(agent, _form(_LARGE, stream="true"))
        assert answer.body.startswith(b": ping\n\n")
        assert answer.body.endswith(b"data: [DONE]\n\n")


async def test_what_is_no_form_is_400(llm: StandIn) -> None:
    async with running_agent(llm.as_model()) as agent:
        bare = await agent.chat({"model": "llm"}, PATH)
        damaged = await agent.chat(
            b"--b\r\n", PATH, headers={"Content-Type": "multipart/form-data; boundary=b"}
        )
        for answer in (bare, damaged):
            assert (answer.status, answer.error["code"]) == (400, "invalid_form")


async def test_forms_have_a_limit_each_and_together(llm: StandIn, held: Held) -> None:
    size = len(_form(_LARGE))
    async with running_agent(llm.as_model(), settings={"form_bytes": size - 1}) as agent:
        assert (await _send(agent, _form(_LARGE))).error["code"] == "body_too_large"
    async with running_agent(llm.as_model(), settings={"forms_bytes": size - 1}) as agent:
        refused = await _send(agent, _form(_LARGE))
        assert (refused.status, refused.error["code"]) == (503, "bodies_too_large")
        assert (await _send(agent, _form(_SMALL))).status == 200
        assert held() == 0


async def test_a_client_that_leaves_leaves_no_file(llm: StandIn, held: Held) -> None:
    async with running_agent(llm.as_model(), settings={"forms_bytes": 5 << 20}) as agent:
        _, writer = await agent.connect()
        head = f"POST {PATH} HTTP/1.1\r\nHost: a\r\nContent-Length: 4000000\r\n"
        writer.write(head.encode() + b"Content-Type: multipart/form-data; boundary=b\r\n\r\n")
        writer.write(b"--b\r\n" + _LARGE)
        await writer.drain()
        while not held():
            await agent.get("/healthz")
        writer.close()
        while (await _send(agent, _form(_LARGE))).status != 200:
            pass
        assert held() == 0


async def test_a_form_is_sent_again_where_a_kept_connection_was_stale(
    stand_in: StartStandIn,
) -> None:
    backend = stand_in("--reset-reused")
    async with running_agent(backend.as_model()) as agent:
        answers = [await _send(agent, _form(_LARGE)) for _ in range(2)]
        assert [answer.status for answer in answers] == [200, 200]
        assert await backend.last_body() == _form(_LARGE)


async def test_no_room_on_the_disk_is_503(
    llm: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    async with running_agent(llm.as_model()) as agent:
        answer = await _send(agent, _form(_LARGE))
        assert (answer.status, answer.error["code"]) == (503, "no_room_on_disk")
        assert answer.headers["Retry-After"]


async def test_clients_that_leave_while_the_engine_works_end_its_work(
    stand_in: StartStandIn,
) -> None:
    backend = stand_in("--hang")
    async with running_agent(backend.as_model()) as agent:
        asked = [asyncio.create_task(_send(agent, _form(_LARGE))) for _ in range(4)]
        await backend.until_running(4)
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
        await backend.until(lambda state: state["cancelled"] == 4)
        assert agent.traffic.total == 0
