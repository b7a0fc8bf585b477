"""Which paths there are, over a real socket with real backends behind it."""

from dataclasses import replace

import pytest

from reconciler.plan.desired import ModelType
from reconciler.status import JUST_STARTED
from tests.proxy.agent import running_agent
from tests.proxy.builders import model
from tests.proxy.stand_in import StandIn, StartStandIn

_WEBSOCKET = {"Connection": "upgrade", "Upgrade": "websocket"}
_CHAT_BODY = {"model": "llm", "messages": []}


@pytest.mark.parametrize("prefix", ["", "/api/inference"])
@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/v1/chat/completions", "llm"),
        ("/v1/completions", "llm"),
        ("/v1/responses", "llm"),
        ("/v1/messages", "llm"),
        ("/v1/messages/count_tokens", "llm"),
        ("/v1/embeddings", "emb"),
        ("/v2/embed", "emb"),
        ("/pooling", "emb"),
        ("/tokenize", "llm"),
        ("/tokenize", "emb"),
        ("/detokenize", "emb"),
    ],
)
async def test_engine_paths_reach_the_backend_under_both_prefixes(
    llm: StandIn, embedding: StandIn, prefix: str, path: str, name: str
) -> None:
    backend = {"llm": llm, "emb": embedding}[name]
    models = (llm.as_model(), embedding.as_model("emb", type=ModelType.EMBEDDING))
    async with running_agent(*models) as agent:
        answer = await agent.chat({"model": name}, prefix + path)
        assert answer.status == 200
        assert answer.json["model"] == name
        assert await backend.last_target() == path


async def test_embeddings_have_a_path_of_their_own(llm: StandIn, embedding: StandIn) -> None:
    models = (llm.as_model(), embedding.as_model("emb", type=ModelType.EMBEDDING))
    async with running_agent(*models) as agent:
        answer = await agent.chat({"input": "x"}, "/api/inference/embedding/v1/embeddings")
        listed = await agent.get("/api/inference/embedding/v1/models")
        assert answer.json["data"][0]["embedding"]
        assert [entry["id"] for entry in listed.json["data"]] == ["emb"]
        one = await agent.get("/api/inference/embedding/v1/models/emb")
        other = await agent.get("/api/inference/embedding/v1/models/llm")
        assert one.json["id"] == "emb"
        assert (other.status, other.error["code"]) == (404, "model_not_found")
        assert other.error["message"].endswith("it is of type llm, this path lists embedding")
        none = await agent.get("/api/inference/embedding/v1/models/nobody")
        assert (none.status, none.error["code"]) == (404, "model_not_found")
        assert none.error["message"].endswith("this node knows emb")


async def test_unknown_paths_are_404_in_openais_shape() -> None:
    async with running_agent() as agent:
        for path in ("/nothing", "/v1/nothing", "/v1/chat/completions/", "/api", "/"):
            answer = await agent.get(path)
            assert (answer.status, answer.error["code"]) == (404, "unknown_path")
            assert set(answer.error) == {"message", "type", "param", "code"}


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("path", ["/v1/realtime", "/api/inference/v1/realtime"])
async def test_engine_paths_of_later_say_so(method: str, path: str) -> None:
    async with running_agent() as agent:
        answer = await agent.request(method, path, headers=_WEBSOCKET)
        assert (answer.status, answer.error["code"]) == (404, "not_supported_yet")
        assert path in answer.error["message"]


@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank", "/v2/rerank", "/score", "/classify"])
async def test_paths_of_other_models_say_which_they_need(llm: StandIn, path: str) -> None:
    """gpustack#6184: an engine's rerank path was 404 (scenario 53)."""
    async with running_agent(llm.as_model()) as agent:
        named = await agent.chat({"model": "llm"}, path)
        unnamed = await agent.chat({}, path)
        assert (named.status, named.error["code"]) == (400, "wrong_model_type")
        assert (unnamed.status, unnamed.error["code"]) == (503, "no_model_of_type")
        assert "rerank" in named.error["message"]


async def test_a_path_of_every_type_wants_a_name_where_there_are_several(
    llm: StandIn, embedding: StandIn
) -> None:
    models = (llm.as_model(), embedding.as_model("emb", type=ModelType.EMBEDDING))
    async with running_agent(*models) as agent:
        unnamed = await agent.chat({"content": "x"}, "/tokenize")
        by_query = await agent.chat({"content": "x"}, "/tokenize?model=emb")
        assert unnamed.error["code"] == "model_required"
        assert "emb, llm" in unnamed.error["message"]
        assert by_query.headers["X-Served-By"] == "node-a/emb"


@pytest.mark.parametrize("method", ["GET", "DELETE", "POST"])
@pytest.mark.parametrize("path", ["/v1/responses/resp_1", "/api/inference/v1/responses/r/cancel"])
async def test_what_only_an_engine_could_have_kept_is_not_found(method: str, path: str) -> None:
    async with running_agent(model(port=1)) as agent:
        answer = await agent.request(method, path)
        assert (answer.status, answer.error["code"]) == (404, "not_kept")
        assert path in answer.error["message"]


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/chat/completions", "POST, OPTIONS"),
        ("HEAD", "/v1/chat/completions", "POST, OPTIONS"),
        ("DELETE", "/v1/models", "GET, HEAD, OPTIONS"),
        ("POST", "/api/cluster/servers", "GET, HEAD, OPTIONS"),
        ("PUT", "/healthz", "GET, HEAD, OPTIONS"),
    ],
)
async def test_wrong_methods_are_405_with_allow(method: str, path: str, allowed: str) -> None:
    async with running_agent() as agent:
        answer = await agent.request(method, path)
        assert (answer.status, answer.headers["Allow"]) == (405, allowed)


async def test_options_says_what_is_allowed() -> None:
    async with running_agent() as agent:
        answer = await agent.request("OPTIONS", "/v1/chat/completions")
        assert (answer.status, answer.headers["Allow"], answer.body) == (204, "POST, OPTIONS", b"")


async def test_head_has_the_headers_of_get_without_its_body() -> None:
    async with running_agent(model()) as agent:
        head, get = await agent.request("HEAD", "/v1/models"), await agent.get("/v1/models")
        assert head.headers["Content-Length"] == get.headers["Content-Length"]
        assert head.body == b""


async def test_models_are_listed_by_name_and_alias_with_their_state(llm: StandIn) -> None:
    """llama-swap#1138, #399: aliases were missing from /v1/models (scenario 51)."""
    models = (llm.as_model("org/llm", aliases=("gpt-4o-mini",)), model("other"))
    async with running_agent(*models) as agent:
        listed = (await agent.get("/v1/models")).json
        entries = [(e["id"], e["root"], e["state"], e["object"]) for e in listed["data"]]
        assert listed["object"] == "list"
        assert entries == [
            ("gpt-4o-mini", "org/llm", "loaded", "model"),
            ("org/llm", "org/llm", "loaded", "model"),
            ("other", "other", "loading", "model"),
        ]


async def test_a_node_that_is_starting_lists_no_models_but_says_so() -> None:
    """An empty list would be taken for the truth, and OpenAI's clients repeat a 503, not a 404."""
    async with running_agent() as agent:
        agent.board.now = replace(agent.board.now, unknown_because="has just started")
        for path in ("/v1/models", "/v1/models/llm", "/api/inference/embedding/v1/models"):
            answer = await agent.get(path)
            assert (answer.status, answer.error["code"]) == (503, "node_starting")
            assert int(answer.headers["Retry-After"]) > 0
        assert (await agent.chat({"model": "llm"})).error["code"] == "node_starting"
        assert (await agent.get("/healthz")).status == 200
        assert (await agent.get("/cluster")).json["servers"][0]["unknown_because"] is not None


@pytest.mark.parametrize(
    "path", ["models", "models/llm", "models/llm/logs", "events?model=llm", "models/a%2Fb"]
)
async def test_a_node_that_is_starting_denies_no_model_to_operators(path: str) -> None:
    async with running_agent() as agent:
        agent.board.now = replace(agent.board.now, unknown_because=JUST_STARTED)
        answer = await agent.get(f"/api/management/{path}")
        assert (answer.status, answer.error["code"]) == (503, "node_starting")
        assert int(answer.headers["Retry-After"]) > 0


@pytest.mark.parametrize("path", ["/v1/models/org/llm", "/v1/models/org%2Fllm"])
async def test_one_model_is_found_by_a_name_with_a_slash(llm: StandIn, path: str) -> None:
    async with running_agent(llm.as_model("org/llm", aliases=("short",))) as agent:
        assert (await agent.get(path)).json["id"] == "org/llm"
        assert (await agent.get("/v1/models/short")).json["root"] == "org/llm"
        assert (await agent.get("/v1/models/none")).error["code"] == "model_not_found"


async def test_cluster_view_counts_what_is_in_flight(stand_in: StartStandIn) -> None:
    backend = stand_in("--hang")
    async with running_agent(backend.as_model()) as agent:
        await agent.send_raw(_CHAT_BODY)
        await backend.until_running(1)
        view = (await agent.get("/api/cluster/servers")).json
        assert view["servers"][0]["loaded_models"][0]["in_flight"] == 1
        assert (await agent.get("/cluster")).json == view
        assert (await agent.get("/api/cluster/_self")).json == view["servers"][0]


async def test_readiness_follows_the_status_and_health_does_not() -> None:
    async with running_agent(model("big")) as agent:
        agent.board.now = replace(agent.board.now, ready=False)
        waiting = await agent.get("/readyz")
        agent.board.now = replace(agent.board.now, ready=True)
        ready = await agent.get("/readyz")
        agent.board.now = replace(agent.board.now, draining=True)
        draining = await agent.get("/readyz")
        assert (waiting.status, ready.status, draining.status) == (503, 200, 503)
        assert "big (loading)" in waiting.json["reason"]
        assert (await agent.get("/healthz")).status == 200
