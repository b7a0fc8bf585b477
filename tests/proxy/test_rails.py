"""`POST /api/management/suspend`, `/resume` and what is confirmed, over HTTP."""

from typing import Any

import pytest

from reconciler.errors import Rejected, Transient, XgenError
from tests.proxy.agent import running_agent
from tests.proxy.builders import Operators, Orders, model

SUSPEND, RESUME = "/api/management/suspend", "/api/management/resume"
RECONCILE = "/api/management/reconcile"
BY = "a client at 127.0.0.1"


@pytest.mark.parametrize(
    ("path", "body", "given"),
    [
        (SUSPEND, {}, ("suspend", None, BY, "", None)),
        (SUSPEND, {"model": "gpt"}, ("suspend", "llm", BY, "", None)),
        (
            SUSPEND,
            {"model": "llm", "by": " kim\n", "reason": "so", "until": "2026-12-01T18:00:00+01:00"},
            ("suspend", "llm", "kim", "so", "2026-12-01T17:00:00+00:00"),
        ),
        (RESUME, {}, ("resume", None, BY)),
        (RESUME, {"model": "gpt", "by": "kim"}, ("resume", "llm", "kim")),
        (RESUME, {"model": "gone"}, ("resume", "gone", BY)),
        (RECONCILE, {"confirm": "abcdefg"}, ("confirm", "abcdefg", BY)),
        (RECONCILE, {"now": True, "by": "kim"}, ("hurry", "kim")),
    ],
)
async def test_an_order_is_given_to_the_loop(
    path: str, body: dict[str, object], given: tuple[object, ...]
) -> None:
    async with running_agent(model("llm", aliases=("gpt",))) as agent:
        answer = await agent.request("POST", path, body=body)
        assert agent.operators.orders.given == [given]
    assert answer.status == 200
    said = f"{given[0]} was carried out"
    assert answer.json["said"] == ([said] if path == RECONCILE else said)


async def test_without_an_order_reconcile_gives_none() -> None:
    async with running_agent() as agent:
        answer = await agent.request("POST", RECONCILE, body={})
        assert agent.operators.orders.given == []
    assert answer.json["said"] == []


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        (SUSPEND, {"model": "nope"}, 404, "model_not_found"),
        (SUSPEND, {"until": "tomorrow"}, 400, "invalid_json"),
        (SUSPEND, {"until": "2026-12-01T18:00:00"}, 400, "invalid_json"),
        (SUSPEND, {"why": "x"}, 400, "invalid_json"),
        (SUSPEND, {"reason": "x" * 501}, 400, "invalid_json"),
        (RESUME, {"model": 1}, 400, "invalid_json"),
        (RECONCILE, {"confirm": "abc"}, 400, "invalid_json"),
    ],
)
async def test_what_is_no_order_is_refused(path: str, body: Any, status: int, code: str) -> None:
    async with running_agent(model("llm")) as agent:
        answer = await agent.request("POST", path, body=body)
        assert agent.operators.orders.given == []
    assert (answer.status, answer.error["code"]) == (status, code)


@pytest.mark.parametrize("path", [SUSPEND, RESUME, RECONCILE])
@pytest.mark.parametrize(
    ("refusal", "status", "code"),
    [
        (Rejected("cannot: the manifest says so (a.yaml:4:3)"), 409, "cannot_be_done"),
        (Transient("cannot write: no space left"), 503, "not_on_disk"),
    ],
)
async def test_what_cannot_be_done_says_why(
    path: str, refusal: XgenError, status: int, code: str
) -> None:
    operators = Operators(orders=Orders(refusal=refusal))
    body = {"confirm": "abcdefg"} if path == RECONCILE else {}
    async with running_agent(operators=operators) as agent:
        answer = await agent.request("POST", path, body=body)
    assert (answer.status, answer.error["code"]) == (status, code)
    assert str(refusal) in answer.error["message"]


@pytest.mark.parametrize("path", [SUSPEND, RESUME])
@pytest.mark.parametrize("header", ["Origin", "Forwarded", "X-Forwarded-For"])
async def test_only_clients_of_this_host_give_orders(path: str, header: str) -> None:
    async with running_agent() as agent:
        answer = await agent.request("POST", path, body={}, headers={header: "x"})
        assert agent.operators.orders.given == []
    assert answer.status == 403


@pytest.mark.parametrize("path", [SUSPEND, RESUME])
async def test_an_order_is_no_question(path: str) -> None:
    async with running_agent() as agent:
        answer = await agent.get(path)
    assert answer.status == 405
