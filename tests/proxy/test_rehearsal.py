"""What a manifest would change, asked over HTTP."""

from typing import Any

import pytest

from reconciler.manifest.problem import Problem
from reconciler.plan.changes import Change, FieldChange, NodeChanges, Planned, Verb
from reconciler.plan.changes_json import node_from_json
from reconciler.plan.ids import ModelName, NodeName, Place
from reconciler.plan.memory import HOST, Need
from reconciler.plan.phase import State
from tests.proxy.agent import running_agent
from tests.proxy.builders import Operators, Told, model

PLAN = "/api/management/plan"
FILE = {"name": "a.yaml", "content": "kind: é"}
CHANGES = NodeChanges(
    node=NodeName("node-a"),
    changes=(
        Change(
            model=ModelName("llm"),
            verb=Verb.RESTART,
            reason="spec changed",
            state=State.LOADED,
            fields=(FieldChange(path="extra_args.ctx_size", old=1, new=2),),
            fetch=True,
            source="gguf/a_b",
            needs={HOST: Need(weights_bytes=5)},
            download_bytes=7,
            cached_bytes=0,
            downtime_seconds=3.5,
            held="until noon",
        ),
    ),
    order=(Planned(kind="FetchFiles", model=ModelName("llm"), reason="not here"),),
    notes=("wait",),
)
PROBLEMS = tuple(
    Problem(place=Place(file="a.yaml", line=line, column=2), path="spec", message="is wrong")
    for line in range(1, 6)
)


async def test_the_answer_can_be_read_back() -> None:
    operators = Operators(foretold=Told(changes=CHANGES))
    async with running_agent(model(), operators=operators) as agent:
        answer = await agent.request("POST", PLAN, body={"files": [FILE]})

    assert answer.status == 200
    assert operators.rehearsed == [{"a.yaml": "kind: é".encode()}]
    assert node_from_json(answer.json) == CHANGES


@pytest.mark.parametrize("body", [b"", b"{}", b'{"files": null}'])
async def test_without_files_it_is_about_what_is_in_force(body: bytes) -> None:
    operators = Operators(foretold=Told(changes=CHANGES))
    async with running_agent(model(), operators=operators) as agent:
        await agent.request("POST", PLAN, body=body)

    assert operators.rehearsed == [None]


async def test_what_cannot_be_taken_whole_is_422_with_all_problems() -> None:
    operators = Operators(foretold=Told(problems=PROBLEMS))
    async with running_agent(model(), operators=operators) as agent:
        answer = await agent.request("POST", PLAN, body={"files": [FILE]})

    told = answer.json
    assert (answer.status, told["error"]["code"]) == (422, "invalid_manifest")
    assert told["error"]["message"].startswith("cannot take this manifest: 5 errors: a.yaml:1:2: ")
    assert told["error"]["message"].endswith("; and 2 more")
    assert [each["line"] for each in told["problems"]] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "body", [{"files": [FILE, FILE]}, {"files": [{"name": "a"}]}, {"file": []}, {"files": 3}]
)
async def test_what_is_no_question_is_400(body: Any) -> None:
    operators = Operators()
    async with running_agent(model(), operators=operators) as agent:
        answer = await agent.request("POST", PLAN, body=body)

    assert (answer.status, operators.rehearsed) == (400, [])


async def test_a_question_is_not_endless() -> None:
    async with running_agent(model(), operators=Operators()) as agent:
        answer = await agent.request("POST", PLAN, body=b" " * (32 * 1024 * 1024 + 1))

    assert answer.status == 413


async def test_anybody_may_ask() -> None:
    """It changes nothing; what does is refused to who comes by way of a proxy."""
    operators = Operators(foretold=Told(changes=CHANGES))
    async with running_agent(model(), operators=operators) as agent:
        answer = await agent.request("POST", PLAN, body={}, headers={"X-Forwarded-For": "10.0.0.1"})

    assert answer.status == 200
