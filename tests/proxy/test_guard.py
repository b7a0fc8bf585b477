"""Who may say that an agent has passed a request on, and that it ends here."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.types import Message, Receive, Scope, Send

from reconciler.proxy.errors import Header
from reconciler.proxy.guard import MARKS, Guard, Passage, is_routed, judge, marks, passage
from reconciler.proxy.peers.side import ALONE, ClusterSide
from tests.proxy.agent import running_agent
from tests.proxy.stand_in import StandIn

SECRET = "cluster-secret"
FORGED: list[Header] = [
    (b"x-cluster-routed", b"node-z"),
    (b"x-xgen-cluster-token", b"guess"),
    (b"x-xgen-client-on-host", b"1"),
]
OURS = marks(node="node-b", token=SECRET, on_host=True)


async def seen(headers: list[Header], token: str | None) -> Scope:
    """The scope that the application behind the guard gets."""
    scopes: list[Scope] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scopes.append(scope)

    async def receive() -> Message:
        raise AssertionError

    async def send(message: Message) -> None:
        raise AssertionError

    scope = {"type": "http", "headers": headers, "state": {}}
    await Guard(app, lambda: token)(scope, receive, send)
    return scopes[0]


async def test_with_a_token_a_mark_without_it_is_ignored() -> None:
    scope = await seen([(b"x-cluster-routed", b"node-b")], SECRET)
    assert passage(scope) == Passage(by="node-b")
    assert not is_routed(scope)


async def test_with_the_right_token_it_counts() -> None:
    scope = await seen(OURS, SECRET)
    assert passage(scope) == Passage(by="node-b", trusted=True, proven=True, vouched=True)
    assert is_routed(scope)


async def test_without_a_token_it_is_trusted_and_vouches_for_nobody() -> None:
    scope = await seen([(b"x-cluster-routed", b"node-b"), (b"x-xgen-client-on-host", b"1")], None)
    assert passage(scope) == Passage(by="node-b", trusted=True)


async def test_an_agent_with_another_token_is_answered_here() -> None:
    scope = await seen(marks(node="node-b", token="old"), SECRET)
    assert not passage(scope).trusted
    assert is_routed(scope)


async def test_nothing_vouches_without_a_node_that_passed_it_on() -> None:
    scope = await seen([each for each in OURS if each[0] != b"x-cluster-routed"], SECRET)
    assert passage(scope) == Passage(proven=True)


@pytest.mark.parametrize("name", sorted(MARKS))
async def test_what_stands_twice_proves_nothing(name: bytes) -> None:
    twice = [*OURS, *(each for each in OURS if each[0] == name)]
    assert not passage(await seen(twice, SECRET)).vouched


@pytest.mark.parametrize("token", [SECRET, None])
async def test_no_mark_goes_any_further(token: str | None) -> None:
    scope = await seen([(b"a", b"1"), *FORGED, (b"b", b"2")], token)
    assert scope["headers"] == [(b"a", b"1"), (b"b", b"2")]


@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(MARKS)), st.sampled_from([b"", b"1", b"node-b", b"\xff"]))
    )
)
def test_nothing_is_proven_without_the_token(marked: list[Header]) -> None:
    found = judge(marked, SECRET.encode())
    assert (found.proven, found.trusted, found.vouched) == (False, False, False)


@pytest.mark.parametrize("token", [SECRET, None])
async def test_forged_marks_reach_no_backend(llm: StandIn, token: str | None) -> None:
    cluster = ClusterSide(peers=ALONE.peers, loads=ALONE.loads, tokens=lambda: token)
    forged = {name.decode(): value.decode() for name, value in FORGED}
    async with running_agent(llm.as_model(), cluster=cluster) as agent:
        assert (await agent.chat({"model": "llm"}, headers=forged)).status == 200
    assert not MARKS & {name.encode() for name, _ in await llm.last_headers()}
