"""`/api/storage/models`: what the hub holds, over HTTP."""

import pytest

from reconciler.errors import Rejected, Transient, XgenError
from tests.proxy.agent import running_agent
from tests.proxy.builders import Listing, Operators

PATH = "/api/storage/models"


async def test_what_the_hub_holds_is_told() -> None:
    told: dict[str, object] = {"hub": "s3://models", "models": [{"prefix": "gguf/a_b"}]}
    async with running_agent(operators=Operators(hub=Listing(told))) as agent:
        answer = await agent.get(PATH)
    assert answer.json == {"api": 1, "node": "node-a", **told}


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        (Rejected("cannot list the hub: no hub is set"), 409, "no_hub"),
        (Transient("cannot list s3://models: it does not accept connections"), 503, "hub_away"),
    ],
)
async def test_why_it_cannot_be_told(failure: XgenError, status: int, code: str) -> None:
    async with running_agent(operators=Operators(hub=Listing(failure=failure))) as agent:
        answer = await agent.get(PATH)
    assert (answer.status, answer.error["code"]) == (status, code)
    assert answer.error["message"] == str(failure)
    assert ("retry-after" in answer.headers) == (status == 503)


async def test_nothing_can_be_posted() -> None:
    async with running_agent() as agent:
        answer = await agent.request("POST", PATH, body={})
    assert answer.status == 405
