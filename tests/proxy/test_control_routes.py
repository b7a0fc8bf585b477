"""What engines offer to those who run them is not there for clients, however it is spelled."""

import pytest

from reconciler.plan.desired import ModelType
from reconciler.proxy.engine_paths import ENGINE_PATHS, EnginePath
from tests.proxy.agent import CHAT, running_agent
from tests.proxy.judged_engine import judged_engine
from tests.proxy.wire import read_answer

_CONTROL = [
    # vLLM, some only with its development mode: without a key, or for anybody who has one.
    "v1/load_lora_adapter",
    "v1/unload_lora_adapter",
    "sleep",
    "wake_up",
    "is_sleeping",
    "collective_rpc",
    "reset_prefix_cache",
    "reset_mm_cache",
    "server_info",
    "start_profile",
    "stop_profile",
    "update_weights",
    "scale_elastic_ep",
    "pause",
    "resume",
    "invocations",
    "ping",
    "load",
    "version",
    "health",
    "inference/v1/generate",
    "docs",
    "openapi.json",
    # llama-server
    "slots",
    "slots/0",
    "props",
    "infill",
    "apply-template",
    "completion",
    "lora-adapters",
    "models/load",
    "models/unload",
    "api/show",
    "cors-proxy",
    "tools",
    # llama-cpp-python
    "extras/tokenize",
    # inference of engines that is no part of the contract
    "v1/chat/completions/batch",
    "cohere/v2/chat",
    "v1/embed",
    "v1/chat/completions/render",
]
_SPELLINGS = [
    "/{}",
    "/{}/",
    "/{}?model=llm",
    "/{};a=b",
    "//{}",
    "/./{}",
    "/v1/{}",
    "/v1/../{}",
    "/v1/%2e%2e/{}",
    "/v1%2f..%2f{}",
    "/%2f{}",
    "/%252f{}",
    "/v1/chat/completions/../../../{}",
    "/v1/chat/completions/{}",
    "/v1/chat/completions;/../{}",
    "/v1/messages/count_tokens/../../../{}",
    "/api/inference/{}",
    "/api/inference/../../{}",
    "/api/inference/embedding/{}",
    "/api/inference/embedding/v1/../../{}",
    "/tokenize/../{}",
    "/tokenize%00/{}",
    "http://127.0.0.1/{}",
    "http://a@127.0.0.1//{}",
    "https://engine:8000/{}",
]


def _spelled(path: str) -> list[str]:
    escaped = "".join(f"%{ord(letter):02x}" for letter in path)
    return [
        *(spelling.format(path) for spelling in _SPELLINGS),
        f"/{path.upper()}",
        f"/{path[0].upper()}{path[1:]}",
        f"/{escaped}",
        f"/v1/..%2f{escaped}",
        f"/%c0%af{path}",
        "/" + path.replace("/", "%2f"),
        "/" + path.replace("/", "//"),
        "/v1\\..\\" + path,
    ]


@pytest.mark.parametrize(("method", "body"), [("GET", ""), ("POST", '{"model":"llm"}')])
async def test_no_spelling_reaches_an_engine(method: str, body: str) -> None:
    rest = f"HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    async with judged_engine() as engine, running_agent(engine.as_model()) as agent:
        reader, writer = await agent.connect()
        for target in (spelled for path in _CONTROL for spelled in _spelled(path)):
            writer.write(f"{method} {target} {rest}".encode())
            assert (await read_answer(reader)).status in (404, 405), target
        assert engine.asked == []


async def test_only_the_paths_of_the_contract_are_ever_asked_of_an_engine() -> None:
    """However they are spelled: the engine hears its own spelling."""
    spelled = {
        "/v1/chat%2fcompletions": "/v1/chat/completions",
        "/%76%31/completions": "/v1/completions",
        "/api%2finference/tokenize": "/tokenize",
        f"http://elsewhere:1{CHAT}": CHAT,
        f"{CHAT}?path=/../sleep": f"{CHAT}?path=/../sleep",
    }
    async with judged_engine() as engine, running_agent(engine.as_model()) as agent:
        reader, writer = await agent.connect()
        for target in spelled:
            writer.write(
                f"POST {target} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{{}}".encode()
            )
            assert (await read_answer(reader)).status == 200, target
        assert [asked.target for asked in engine.asked] == list(spelled.values())
        assert engine.faults == []


_SAID = [
    (404, "application/json", b'{"detail":"Not Found"}'),
    (404, "text/plain", b""),
    (200, "audio/mpeg", bytes(range(256)) * 40),
]


@pytest.mark.parametrize("path", [each for each in ENGINE_PATHS if not each.form])
async def test_what_an_engine_says_of_a_path_arrives_as_it_is(path: EnginePath) -> None:
    """Its own 404 too, where it lacks the path: it is not ours."""
    async with judged_engine() as engine:
        async with running_agent(engine.as_model(type=path.types[0])) as agent:
            for said in _SAID:
                engine.replies = {path.path: said}
                answer = await agent.chat({"model": "llm"}, path.path)
                assert (answer.status, answer.headers["Content-Type"], answer.body) == said
                assert answer.headers["X-Served-By"] == "node-a/llm"
        assert len(engine.asked) == len(_SAID)


@pytest.mark.parametrize("type", [ModelType.LLM, ModelType.TRANSCRIPTION])
async def test_speech_is_asked_of_models_that_may_speak(type: ModelType) -> None:
    async with judged_engine() as engine, running_agent(engine.as_model(type=type)) as agent:
        assert (await agent.chat({"input": "x"}, "/v1/audio/speech")).status == 200


@pytest.mark.parametrize("type", [ModelType.LLM, ModelType.RERANK])
async def test_moderations_are_asked_of_classifiers_too(type: ModelType) -> None:
    async with judged_engine() as engine, running_agent(engine.as_model(type=type)) as agent:
        assert (await agent.chat({"input": "x"}, "/v1/moderations")).status == 200
