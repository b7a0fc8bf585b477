"""What never reached an engine is counted with the model that it was about."""

from reconciler.plan.desired import ModelType
from reconciler.plan.phase import State
from tests.proxy.agent import running_agent
from tests.proxy.builders import model
from tests.proxy.stand_in import StartStandIn
from tests.proxy.test_metrics_page import value


async def test_a_refusal_is_its_models() -> None:
    models = (
        model("loads"),
        model("off", state=State.DISABLED),
        model("emb", type=ModelType.EMBEDDING, port=1),
        model("gone", port=1),
    )
    async with running_agent(*models) as agent:
        for each in models:
            await agent.chat({"model": each.name})
        for name, code in {"loads": "503", "off": "503", "emb": "400", "gone": "503"}.items():
            assert await value(agent, "xgen_requests_total", model=name, code=code) == 1, name
        for name in ("loads", "off", "emb"):  # no backend was asked
            assert await value(agent, "xgen_request_duration_seconds_count", model=name) == 0


async def test_who_waits_in_vain_is_counted_where_it_waited(stand_in: StartStandIn) -> None:
    backend = stand_in("--hang")
    busy = backend.as_model(max_in_flight=1)
    async with running_agent(busy, settings={"queue_length": 1, "queue_seconds": 0.5}) as agent:
        await agent.send_raw({"model": "llm"})
        await backend.until_running(1)
        reader, _ = await agent.send_raw({"model": "llm"})
        while await value(agent, "xgen_requests_waiting", model="llm") != 1:
            pass
        assert (await agent.chat({"model": "llm"})).status == 429
        assert b"queue_timeout" in await reader.readuntil(b"}}")
        _, leaving = await agent.send_raw({"model": "llm"})
        while await value(agent, "xgen_requests_waiting", model="llm") != 1:
            pass
        leaving.close()
        for code in ("429", "503", "499"):
            while await value(agent, "xgen_requests_total", model="llm", code=code) != 1:
                pass
        assert await value(agent, "xgen_requests_total", model="") is None
