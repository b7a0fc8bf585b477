"""The parameters of the paths for operators: one that is unknown is told, never passed over."""

import pytest

from tests.proxy.agent import running_agent
from tests.proxy.builders import Operators, model

_ALL = [
    ("GET", "/api/management/models"),
    ("GET", "/api/management/models/llm"),
    ("GET", "/api/management/models/llm/logs"),
    ("GET", "/api/management/plan"),
    ("GET", "/api/management/events"),
    ("POST", "/api/management/reconcile"),
    ("GET", "/api/storage/models"),
    ("GET", "/api/download"),
    ("POST", "/api/download"),
    ("GET", "/api/download/job"),
    ("DELETE", "/api/download/job"),
]


def _operators() -> Operators:
    operators = Operators()
    operators.jobs.told["job"] = {"id": "job", "ended_at": "t"}
    return operators


@pytest.mark.parametrize("query", ["retry=true", "x=1", "x"])
@pytest.mark.parametrize(("method", "path"), _ALL)
async def test_an_unknown_parameter_is_refused(method: str, path: str, query: str) -> None:
    """`POST reconcile?retry=true` looked like a retry and was none."""
    body = {"repo": "org/name"} if path == "/api/download" and method == "POST" else None
    async with running_agent(model("llm"), operators=_operators()) as agent:
        answer = await agent.request(method, f"{path}?{query}", body=body)
        assert (answer.status, answer.error["code"]) == (400, "invalid_parameter")
        assert query.partition("=")[0] in answer.error["message"]
        assert agent.operators.asked == []
        assert agent.operators.jobs.asked == []
        assert "job" in agent.operators.jobs.told


@pytest.mark.parametrize(("method", "path"), _ALL)
async def test_the_node_may_be_named_everywhere(method: str, path: str) -> None:
    body = {"repo": "org/name"} if path == "/api/download" and method == "POST" else None
    async with running_agent(model("llm"), operators=_operators()) as agent:
        answer = await agent.request(method, f"{path}?server=node-a", body=body)
    assert answer.status in (200, 202)
