"""What is old is answered as old: nothing passes for ready once the loop is silent."""

from dataclasses import replace

from reconciler.condition import Condition, ConditionType, Reason
from tests.proxy.agent import running_agent
from tests.proxy.builders import NOW, Steady, model

READY = Condition(
    type=ConditionType.READY, status="True", reason=Reason.AS_WANTED, message="serves", since="s"
)
SILENT = replace(NOW, age_seconds=90.0, tick_seconds=88.0, silent_since="2026-03-01T12:01:00Z")
SERVES = replace(model("llm", port=7), conditions=(READY,))


async def test_each_answer_tells_the_moment_that_it_speaks_of() -> None:
    async with running_agent(SERVES) as agent:
        paths = ("_self", "servers")
        own, every = [(await agent.get(f"/api/cluster/{path}")).json for path in paths]
        listed = (await agent.get("/api/management/models")).json
        one = (await agent.get("/api/management/models/llm")).json
        readyz = (await agent.get("/readyz")).json
        for told in (own, every["servers"][0], listed, one, readyz):
            assert (told["now"], told["as_of"]) == (NOW.now, NOW.as_of)
            assert (told["loop"]["age_seconds"], told["loop"]["silent"]) == (1.0, False)
        assert own["models"][0]["conditions"][0]["status"] == "True"


async def test_nothing_is_ready_by_a_loop_that_is_silent() -> None:
    async with running_agent(SERVES, pulse=Steady(SILENT)) as agent:
        agent.board.now = replace(agent.board.now, conditions=(READY,))
        own = (await agent.get("/api/cluster/_self")).json
        one = (await agent.get("/api/management/models/llm")).json
        for told in (own, own["models"][0], own["loaded_models"][0], one):
            (ready,) = told["conditions"]
            assert (ready["status"], ready["reason"]) == ("Unknown", "LoopSilent")
            assert ready["since"] == SILENT.silent_since
            assert f"no tick since {NOW.as_of} (90 s)" in ready["message"]
            assert "under way for 88 s" in ready["message"]


async def test_what_serves_goes_on_to_get_traffic_with_a_warning() -> None:
    async with running_agent(SERVES, pulse=Steady(SILENT)) as agent:
        answer = await agent.get("/readyz")
        assert (answer.status, answer.json["status"]) == (200, "ok")
        assert "what is said here is as of then" in answer.json["warning"]
