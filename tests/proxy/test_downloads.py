"""`/api/download`: imports as jobs, over HTTP."""

from dataclasses import replace
from typing import Any

import pytest

from reconciler.errors import Rejected, Transient
from tests.proxy.agent import running_agent
from tests.proxy.builders import Jobs, Operators

PATH = "/api/download"
RUNNING: dict[str, object] = {"id": "a", "state": "downloading", "ended_at": None}
ENDED: dict[str, object] = {"id": "b", "state": "completed", "ended_at": "t"}


def operators(**jobs: dict[str, object]) -> Operators:
    return Operators(jobs=Jobs(told=dict(jobs)))


async def test_every_job_is_listed() -> None:
    async with running_agent(operators=operators(a=RUNNING, b=ENDED)) as agent:
        told = (await agent.get(PATH)).json
    assert told == {"api": 1, "node": "node-a", "jobs": [RUNNING, ENDED]}


async def test_one_job_is_told() -> None:
    async with running_agent(operators=operators(a=RUNNING)) as agent:
        told = (await agent.get(f"{PATH}/a")).json
    assert told == {"api": 1, "node": "node-a", "job": RUNNING}


@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_a_job_that_is_none_is_404(method: str) -> None:
    async with running_agent() as agent:
        answer = await agent.request(method, f"{PATH}/x")
    assert (answer.status, answer.error["code"]) == (404, "job_not_found")


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        ({"repo": "org/m"}, ("org/m", None, "auto", False)),
        ({"repo": "org/m@v1"}, ("org/m@v1", None, "auto", False)),
        ({"repo": "org/m", "revision": "v1"}, ("org/m@v1", None, "auto", False)),
        (
            {"repo": "hf://org/m", "revision": None, "file": None, "format": None},
            ("org/m", None, "auto", False),
        ),
        (
            {"repo": "org/m", "file": "q.gguf", "format": "gguf", "refresh": True},
            ("org/m", "q.gguf", "gguf", True),
        ),
    ],
)
async def test_an_import_is_asked_for(body: Any, asked: tuple[str, str | None, str, bool]) -> None:
    async with running_agent() as agent:
        answer = await agent.request("POST", PATH, body=body)
        assert agent.operators.jobs.asked == [asked]
    assert answer.status == 202
    assert answer.json == {"api": 1, "node": "node-a", "job": {"id": "new", "state": "pending"}}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_json"),
        (b"[]", "invalid_json"),
        ({}, "invalid_json"),
        ({"repo": 1}, "invalid_json"),
        ({"repo": "org/m", "format": "pickle"}, "invalid_json"),
        ({"repo": "org/m", "revison": "v1"}, "invalid_json"),
        ({"repo": "m"}, "invalid_repository"),
        ({"repo": "org/m@v1", "revision": "v2"}, "invalid_repository"),
        ({"repo": "../x/y"}, "invalid_repository"),
        ({"repo": "org/m", "file": ""}, "invalid_file"),
        ({"repo": "org/m", "file": "m.safetensors"}, "invalid_file"),
        ({"repo": "org/m", "file": "m.gguf", "format": "safetensors"}, "invalid_file"),
    ],
)
async def test_what_is_no_import_is_refused(body: Any, code: str) -> None:
    async with running_agent() as agent:
        answer = await agent.request("POST", PATH, body=body)
        assert agent.operators.jobs.asked == []
    assert (answer.status, answer.error["code"]) == (400, code)


@pytest.mark.parametrize(
    ("refusal", "status", "code"),
    [
        (Rejected("cannot import org/m: no hub is set"), 409, "no_hub"),
        (Transient("cannot save job x"), 503, "job_not_saved"),
    ],
)
async def test_what_cannot_be_done_says_why(
    refusal: Rejected | Transient, status: int, code: str
) -> None:
    async with running_agent(operators=Operators(jobs=Jobs(refusal=refusal))) as agent:
        answer = await agent.request("POST", PATH, body={"repo": "org/m"})
    assert (answer.status, answer.error["code"]) == (status, code)
    assert answer.error["message"] == str(refusal)
    assert ("retry-after" in answer.headers) == (status == 503)


@pytest.mark.parametrize(("job", "forgotten", "status"), [("a", False, 202), ("b", True, 200)])
async def test_a_job_is_cancelled_or_forgotten(job: str, forgotten: bool, status: int) -> None:
    async with running_agent(operators=operators(a=RUNNING, b=ENDED)) as agent:
        answer = await agent.request("DELETE", f"{PATH}/{job}")
    assert answer.status == status
    assert (answer.json["job"]["id"], answer.json["forgotten"]) == (job, forgotten)


@pytest.mark.parametrize(("method", "path"), [("POST", PATH), ("DELETE", f"{PATH}/a")])
async def test_only_clients_on_this_host_may_ask(method: str, path: str) -> None:
    async with running_agent(operators=operators(a=RUNNING)) as agent:
        answer = await agent.request(
            method, path, body={"repo": "org/m"}, headers={"X-Forwarded-For": "127.0.0.1"}
        )
        assert agent.operators.jobs.asked == []
        assert list(agent.operators.jobs.told) == ["a"]
    assert (answer.status, answer.error["code"]) == (403, "not_on_this_host")


async def test_a_draining_node_takes_no_import() -> None:
    async with running_agent() as agent:
        agent.board.now = replace(agent.board.now, draining=True)
        answer = await agent.request("POST", PATH, body={"repo": "org/m"})
    assert (answer.status, answer.error["code"]) == (503, "node_draining")


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", PATH, "GET, HEAD, POST, OPTIONS"),
        ("POST", f"{PATH}/a", "GET, HEAD, DELETE, OPTIONS"),
    ],
)
async def test_other_methods_are_refused_with_those_that_are_not(
    method: str, path: str, allowed: str
) -> None:
    async with running_agent() as agent:
        answer = await agent.request(method, path)
        options = await agent.request("OPTIONS", path)
    assert (answer.status, answer.headers["Allow"]) == (405, allowed)
    assert (options.status, options.headers["Allow"]) == (204, allowed)
