"""`/metrics` and `/metrics/backends`, as a scraper sees them."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from prometheus_client import Metric
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics_families,
)
from prometheus_client.parser import text_string_to_metric_families

from reconciler.condition import Condition, ConditionType, Reason
from reconciler.metrics import TokenKind
from reconciler.plan.ids import ModelName
from reconciler.plan.phase import State
from reconciler.status import Drift, DriftKind, ModelDetail
from tests.proxy.agent import Agent, running_agent
from tests.proxy.builders import model
from tests.proxy.stand_in import StandIn, StartStandIn

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


async def families(agent: Agent, path: str = "/metrics") -> Mapping[str, Metric]:
    answer = await agent.get(path)
    assert answer.status == 200
    return {family.name: family for family in text_string_to_metric_families(answer.body.decode())}


async def value(agent: Agent, sample: str, **labels: str) -> float | None:
    for family in (await families(agent)).values():
        for found in family.samples:
            if found.name == sample and labels.items() <= found.labels.items():
                return found.value
    return None


async def test_the_format_is_the_one_that_the_scraper_asks_for() -> None:
    async with running_agent(model("llm")) as agent:
        classic = await agent.get("/metrics")
        modern = await agent.get("/metrics", headers={"Accept": f"{OPENMETRICS},*/*;q=0.1"})
    assert classic.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert modern.headers["content-type"].startswith("application/openmetrics-text")
    # The library's own annotation is missing.
    assert list(openmetrics_families(modern.body.decode()))  # type: ignore[no-untyped-call]


async def test_models_show_their_state_and_their_wish() -> None:
    detail = ModelDetail(load_seconds=2.5, restart_causes=(("crashed", 3),))
    off = model("off", state=State.DISABLED, detail=ModelDetail(enabled=False))
    async with running_agent(model("llm", port=7, detail=detail), off) as agent:
        assert await value(agent, "xgen_model_state", model="llm", state="loaded") == 1
        assert await value(agent, "xgen_model_state", model="llm", state="error") == 0
        assert await value(agent, "xgen_model_desired", model="llm") == 1
        assert await value(agent, "xgen_model_desired", model="off") == 0
        assert await value(agent, "xgen_model_load_seconds", model="llm") == 2.5
        assert await value(agent, "xgen_model_restarts_total", model="llm", reason="crashed") == 3
        assert await value(agent, "xgen_model_restarts_total", model="llm", reason="hung") == 0


def _says(type: ConditionType, status: str) -> Condition:
    return Condition(type=type, status=status, reason=Reason.AS_WANTED, message="m", since="s")


async def test_conditions_show_the_status_that_they_are_in_while_they_are_there() -> None:
    lost = _says(ConditionType.SOURCE_READY, "False")
    async with running_agent(model("llm")) as agent:
        agent.board.put(replace(agent.board.now, conditions=(lost,), agent_version="1.2.3"))
        for standing, expected in (("True", 0), ("False", 1), ("Unknown", 0)):
            labels = {"type": "SourceReady", "status": standing}
            assert await value(agent, "xgen_condition", **labels) == expected
        assert await value(agent, "xgen_agent_info", version="1.2.3") == 1
        agent.board.put(replace(agent.board.now, conditions=()))
        assert await value(agent, "xgen_condition") is None


async def test_a_degraded_model_shows_it() -> None:
    fails = replace(model("fails"), conditions=(_says(ConditionType.DEGRADED, "True"),))
    works = replace(model("works"), conditions=(_says(ConditionType.DEGRADED, "False"),))
    async with running_agent(fails, works) as agent:
        assert await value(agent, "xgen_model_degraded", model="fails") == 1
        assert await value(agent, "xgen_model_degraded", model="works") == 0
        agent.board.set(works)
        assert await value(agent, "xgen_model_degraded", model="fails") is None


async def test_drift_is_counted_by_kind_of_the_node_and_its_models() -> None:
    stranger = Drift(kind=DriftKind.GPU_STRANGER, model=None, what="w", done="d", since="s")
    changed = replace(stranger, kind=DriftKind.FILES_CHANGED, model=ModelName("llm"))
    async with running_agent(replace(model("llm"), drift=(changed,))) as agent:
        agent.board.put(replace(agent.board.now, drift=(stranger, stranger)))
        assert await value(agent, "xgen_drift", kind="GpuStranger") == 2
        assert await value(agent, "xgen_drift", kind="FilesChanged") == 1
        assert await value(agent, "xgen_drift", kind="ProcessEnded") == 0


async def test_requests_are_counted_with_code_and_times(llm: StandIn) -> None:
    async with running_agent(llm.as_model()) as agent:
        for body in ({"model": "llm"}, {"model": "llm", "stream": True}, {"model": "nobody's"}):
            await agent.chat(body)
        counted = {"model": "llm", "node": "node-a", "code": "200"}
        assert await value(agent, "xgen_requests_total", **counted) == 2
        assert await value(agent, "xgen_requests_total", model="", code="404") == 1
        assert await value(agent, "xgen_request_duration_seconds_count", model="llm") == 2
        assert await value(agent, "xgen_time_to_first_byte_seconds_count", model="llm") == 2


async def test_a_name_that_a_client_made_up_makes_no_series() -> None:
    async with running_agent(model("llm")) as agent:
        await agent.chat({"model": "made-up"})
        assert b"made-up" not in (await agent.get("/metrics")).body


async def test_a_client_that_left_and_a_request_in_flight_are_counted(
    stand_in: StartStandIn,
) -> None:
    backend = stand_in("--name", "llm", "--hang")
    async with running_agent(backend.as_model()) as agent:
        _, writer = await agent.send_raw({"model": "llm"})
        await backend.until_running(1)
        assert await value(agent, "xgen_requests_in_flight", model="llm") == 1
        writer.close()
        await backend.until_running(0)
        while await value(agent, "xgen_requests_in_flight", model="llm"):
            pass
        assert await value(agent, "xgen_requests_total", model="llm", code="499") == 1


@pytest.mark.parametrize(
    ("flag", "kind"),
    [("--reset-before-first-byte", "lost"), ("--reset-mid-stream", "lost_midway")],
)
async def test_backends_that_fail_are_counted_by_how(
    stand_in: StartStandIn, flag: str, kind: str
) -> None:
    async with running_agent(stand_in("--name", "llm", flag).as_model()) as agent:
        _, writer = await agent.send_raw({"model": "llm", "stream": True})
        while not await value(agent, "xgen_upstream_errors_total", kind=kind):
            pass
        writer.close()


async def test_nothing_of_a_model_that_is_gone_is_left(llm: StandIn) -> None:
    async with running_agent(llm.as_model(), model("stays")) as agent:
        await agent.chat({"model": "llm"})
        assert b'model="llm"' in (await agent.get("/metrics")).body
        agent.board.set(model("stays"))
        page = (await agent.get("/metrics")).body
    assert b'model="llm"' not in page
    assert b'model="stays"' in page


async def test_tokens_of_a_model_are_shown_while_it_is_known() -> None:
    async with running_agent(model("llm"), model("silent")) as agent:
        for kind, tokens in ((TokenKind.PROMPT, 7), (TokenKind.GENERATED, 2)):
            agent.metrics.count_tokens("llm", kind, tokens)
            agent.metrics.count_tokens("llm", kind, 1)
        assert await value(agent, "xgen_tokens_total", model="llm", kind="prompt") == 8
        assert await value(agent, "xgen_tokens_total", model="llm", kind="generated") == 3
        assert await value(agent, "xgen_tokens_total", model="silent") is None
        agent.board.set(model("silent"))
        assert await value(agent, "xgen_tokens_total", model="llm") is None
        agent.board.set(model("llm"))  # another one of that name
        assert await value(agent, "xgen_tokens_total", model="llm") is None


async def test_engines_figures_come_with_model_and_node(llm: StandIn, embedding: StandIn) -> None:
    models = (
        llm.as_model(metrics_path="/metrics"),
        embedding.as_model("emb", metrics_path="/metrics"),
    )
    async with running_agent(*models) as agent:
        found = await families(agent, "/metrics/backends")
    samples = found["llamacpp:requests_processing"].samples
    assert {s.labels["model"] for s in samples} == {"llm", "emb"}
    assert {s.labels["node"] for s in samples} == {"node-a"}


async def test_an_engine_that_does_not_answer_is_left_out_and_counted(llm: StandIn) -> None:
    models = (
        llm.as_model(metrics_path="/metrics"),
        llm.as_model("wrong-path", metrics_path="/nothing"),
        llm.as_model("no-metrics", metrics_path="/debug/state"),
        llm.as_model("without-a-page"),
        model("dead", port=1, metrics_path="/metrics"),
    )
    async with running_agent(*models) as agent:
        found = await families(agent, "/metrics/backends")
        errors = await value(agent, "xgen_upstream_errors_total", kind="scrape")
    labels = [s.labels["model"] for family in found.values() for s in family.samples]
    assert set(labels) == {"llm"}
    assert errors == 3
