"""What operators look up, and what they may ask for."""

from dataclasses import replace
from typing import Any

import pytest
from starlette.types import Scope

from reconciler.attempt import Attempt, Outcome, Shortfall
from reconciler.plan.actions import Outlook, Plan, StartBackend
from reconciler.plan.desired import ModelSpec, SecretRef, Timeouts
from reconciler.plan.ids import FilesDigest, Instance, ModelName, Place, SpecHash
from reconciler.plan.memory import HOST, Need, Pool
from reconciler.plan.observed import EffectKind
from reconciler.plan.phase import State
from reconciler.proxy.access import why_not_allowed
from reconciler.proxy.guard import Passage
from reconciler.status import FailureNote, ModelDetail, Planned, UnderWay
from tests.proxy.agent import running_agent
from tests.proxy.builders import KEY, Operators, model

RECONCILE = "/api/management/reconcile"
SPEC = ModelSpec(
    source="gguf/a_b",
    env={"HF_TOKEN": SecretRef(from_env="HUB"), "PASSWORD": "hunter22", "LEVEL": "debug"},
    extra_args={"ctx_size": 8192},
)
DETAIL = ModelDetail(
    spec=SPEC,
    timeouts=Timeouts(),
    place=Place(file="a.yaml", line=3, column=5),
    argv=("llama-server", "-m", "x.gguf"),
    passed_over=("vllm-cpu: not here",),
    load_seconds=1.5,
    expected_load_seconds=2.5,
    restart_causes=(("crashed", 2),),
    failures_in_a_row=2,
    failures=(FailureNote(at="t1", during="load", reason="exited with code 1"),),
)
PLANNED = Planned(
    at="t2",
    revision="r1",
    next_at="t3",
    waits=("suspended",),
    under_way=(UnderWay(model=ModelName("b"), kind=EffectKind.FETCH, since="t1", detail="5 %"),),
    plan=Plan(
        actions=(
            StartBackend(
                model=ModelName("a"),
                instance=Instance(spec_hash=SpecHash("1:a"), files_digest=FilesDigest("d")),
                gpus=(),
                reason="in the manifest and not running",
            ),
        ),
        outlook=(
            Outlook(
                model=ModelName("a"),
                state=State.LOADING,
                reason="starts",
                needs={
                    HOST: Need(
                        weights_bytes=40,
                        kv_cache_bytes=20,
                        overhead_bytes=5,
                        tokens=7,
                        mapped_bytes=40,
                    ),
                    Pool("GPU-0"): Need(weights_bytes=30, claimed_bytes=50),
                },
            ),
        ),
    ),
)


async def test_any_text_can_be_told() -> None:
    """Names of files and YAML escapes may hold what UTF-8 cannot."""
    odd = "cannot read '\udcff.yaml': \ud800"
    async with running_agent(model("llm", reason=odd)) as agent:
        shown = await agent.get("/api/management/models/llm")
        node = await agent.get("/api/cluster/_self")
    assert (shown.status, node.status) == (200, 200)
    assert shown.json["reason"] == "cannot read '\\udcff.yaml': \\ud800"
    assert node.json["models"][0]["reason"] == shown.json["reason"]


async def test_a_model_is_told_with_all_that_operators_need() -> None:
    async with running_agent(model("llm", port=7, aliases=("gpt",), detail=DETAIL)) as agent:
        shown = (await agent.get("/api/management/models/gpt")).json
    assert shown["name"] == "llm"
    assert shown["in_flight"] == 0
    assert shown["spec"]["extra_args"] == {"ctx_size": 8192}
    assert shown["spec"]["source"] == "gguf/a_b"
    assert shown["timeouts"]["ready"] == 1800
    assert shown["place"] == "a.yaml:3:5"
    assert shown["argv"] == ["llama-server", "-m", "x.gguf"]
    assert shown["passed_over"] == ["vllm-cpu: not here"]
    assert shown["restart_causes"] == {"crashed": 2}
    assert shown["failure"] == {
        "count": 2,
        "permanent": False,
        "recent": [{"at": "t1", "during": "load", "reason": "exited with code 1"}],
    }


async def test_secrets_do_not_show() -> None:
    async with running_agent(model("llm", port=7, detail=DETAIL)) as agent:
        for path in ("models", "models/llm", "plan", "events"):
            answer = await agent.get(f"/api/management/{path}")
            assert KEY not in answer.body.decode()
            assert "hunter22" not in answer.body.decode()
        shown = (await agent.get("/api/management/models/llm")).json["spec"]["env"]
    assert shown == {"HF_TOKEN": {"from_env": "HUB"}, "PASSWORD": "***", "LEVEL": "debug"}


async def test_the_list_has_every_model_of_the_node() -> None:
    async with running_agent(model("a"), model("b")) as agent:
        listed = (await agent.get("/api/management/models")).json
    assert [entry["name"] for entry in listed["models"]] == ["a", "b"]
    assert {"api", "node", "version", "revision", "elsewhere"} < set(listed)


@pytest.mark.parametrize("path", ["models/lm-main", "models/lm-main/logs"])
async def test_an_unknown_model_is_404_with_the_nearest_names(path: str) -> None:
    async with running_agent(model("llm-main"), model("other")) as agent:
        answer = await agent.get(f"/api/management/{path}")
    assert answer.status == 404
    assert answer.error["code"] == "model_not_found"
    assert "nearest: llm-main;" in answer.error["message"]


async def test_the_plan_is_told_in_its_documented_shape() -> None:
    async with running_agent(operators=Operators(plan=PLANNED)) as agent:
        told = (await agent.get("/api/management/plan")).json
    assert told == {
        "api": 1,
        "node": "node-a",
        "at": "t2",
        "revision": "r1",
        "next_at": "t3",
        "waits": ["suspended"],
        "actions": [
            {
                "action": "StartBackend",
                "model": "a",
                "spec_hash": "1:a",
                "files_digest": "d",
                "gpus": [],
                "reason": "in the manifest and not running",
            }
        ],
        "held": [],
        "under_way": [{"model": "b", "kind": "fetch", "since": "t1", "detail": "5 %", "pid": None}],
        "models": [
            {
                "name": "a",
                "state": "loading",
                "reason": "starts",
                "target": None,
                "asked_again": False,
                "draining": [],
                "memory": {
                    "total_bytes": 65,
                    "complete": True,
                    "weights_bytes": 40,
                    "mapped_bytes": 40,
                    "kv_cache_bytes": 20,
                    "context_tokens": 7,
                    "overhead_bytes": 5,
                    "claimed_bytes": None,
                    "checked_bytes": None,
                    "grows": False,
                },
                "memory_on_gpus": {
                    "GPU-0": {
                        "total_bytes": 50,
                        "complete": True,
                        "weights_bytes": 30,
                        "mapped_bytes": 0,
                        "kv_cache_bytes": None,
                        "context_tokens": None,
                        "overhead_bytes": 0,
                        "claimed_bytes": 50,
                        "checked_bytes": None,
                        "grows": False,
                    }
                },
                "download_bytes": None,
            }
        ],
    }


async def test_before_the_first_tick_the_plan_is_empty() -> None:
    async with running_agent() as agent:
        told = (await agent.get("/api/management/plan")).json
    assert (told["at"], told["actions"], told["models"]) == (None, [], [])


@pytest.mark.parametrize(
    ("body", "asked"),
    [
        (b"", (False, None)),
        ({}, (False, None)),
        ({"retry": True}, (True, None)),
        ({"retry": True, "model": "gpt"}, (True, "llm")),
    ],
)
async def test_reconcile_is_asked_of_the_loop(body: Any, asked: tuple[bool, str | None]) -> None:
    async with running_agent(model("llm", aliases=("gpt",))) as agent:
        answer = await agent.request("POST", RECONCILE, body=body)
        assert answer.status == 200
        assert answer.json["retried"] == (["llm"] if asked[0] else [])
        assert agent.operators.asked == [asked]


async def test_a_retry_of_what_is_suspended_says_so() -> None:
    async with running_agent(model("llm")) as agent:
        agent.operators.forgiven = {ModelName("llm"): "suspended by kim"}
        answer = await agent.request("POST", RECONCILE, body={"retry": True})
        assert answer.json["retried"] == []
        assert answer.json["said"] == ["llm is not tried: suspended by kim"]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"[]", 400),
        ({"retry": "yes"}, 400),
        ({"force": True}, 400),
        ({"retry": True, "model": "lm"}, 404),
    ],
)
async def test_what_is_no_command_is_refused(body: Any, status: int) -> None:
    async with running_agent(model("llm")) as agent:
        answer = await agent.request("POST", RECONCILE, body=body)
        assert answer.status == status
        assert agent.operators.asked == []


async def test_a_draining_node_takes_no_command() -> None:
    async with running_agent() as agent:
        agent.board.now = replace(agent.board.now, draining=True)
        answer = await agent.request("POST", RECONCILE, body={})
    assert (answer.status, answer.error["code"]) == (503, "node_draining")


@pytest.mark.parametrize(
    "header", ["Origin", "X-Forwarded-For", "Forwarded"], ids=lambda name: name.lower()
)
async def test_who_sends_for_somebody_else_may_change_nothing(header: str) -> None:
    """A page in a browser on this host, or a proxy on it that others reach."""
    async with running_agent() as agent:
        answer = await agent.request("POST", RECONCILE, body={}, headers={header: "127.0.0.1"})
        assert (answer.status, answer.error["code"]) == (403, "not_on_this_host")
        assert agent.operators.asked == []


@pytest.mark.parametrize(
    ("client", "allowed"),
    [
        (("127.0.0.1", 5), True),
        (("127.8.8.8", 5), True),
        (("::1", 5), True),
        (("::ffff:127.0.0.1", 5), True),
        (("10.1.2.3", 5), False),
        (("::ffff:10.1.2.3", 5), False),
        (("2001:db8::1", 5), False),
        (("localhost", 5), False),
        (None, False),
    ],
)
def test_only_clients_on_this_host_may_change_anything(
    client: tuple[str, int] | None, allowed: bool
) -> None:
    scope: Scope = {
        "type": "http",
        "client": client,
        "headers": [(b"host", b"localhost")],
        "state": {"passage": Passage()},
    }
    refusal = why_not_allowed(scope)
    assert (refusal is None) == allowed
    assert refusal is None or refusal.status == 403


async def test_what_changes_anything_is_post_only() -> None:
    async with running_agent() as agent:
        assert (await agent.get(RECONCILE)).status == 405


async def test_the_history_has_the_newest_revision_first() -> None:
    old = Attempt(
        revision="r1",
        seen_at="t1",
        outcome=Outcome.FAILED,
        reason="not as wanted: a",
        settled_at="t2",
        seconds=3.5,
        models=(Shortfall(model="a", reason="exited with code 1"),),
    )
    new = Attempt(revision="r2", seen_at="t3", outcome=Outcome.WAITING, reason="waits for a")
    async with running_agent(operators=Operators(attempts=(old, new))) as agent:
        told = (await agent.get("/api/management/history")).json
    assert [each["revision"] for each in told["revisions"]] == ["r2", "r1"]
    assert told["revisions"][1] == {
        "revision": "r1",
        "seen_at": "t1",
        "outcome": "failed",
        "reason": "not as wanted: a",
        "settled_at": "t2",
        "seconds": 3.5,
        "models": [{"model": "a", "reason": "exited with code 1"}],
        "problems": [],
        "note": "",
    }
