"""What a rehearsal comes to for each model."""

from dataclasses import replace

import pytest

from reconciler.loop.comparison import Figures, Present, Reckoned, compared
from reconciler.plan.changes import Change, FieldChange, NodeChanges, Verb
from reconciler.plan.desired import Desired, DesiredModel, Elsewhere, SecretRef, Strategy, Timeouts
from reconciler.plan.ids import FilesDigest, Instance, ModelName, NodeName, Nonce
from reconciler.plan.memory import HOST, Need, Room
from reconciler.plan.observed import Failure, Observed, ObservedModel, ObservedProcess
from reconciler.plan.phase import State
from reconciler.plan.rehearsal import files_of, planner_alone, rehearse
from tests.plan.world import desired_model

M = ModelName("m")
SERVES = Present(state=State.LOADED, reason="serves (pid 7)")


def running(model: DesiredModel, *, loaded: bool = True) -> ObservedModel:
    process = ObservedProcess(
        nonce=Nonce("n"),
        pid=7,
        instance=Instance(spec_hash=model.spec_hash, files_digest=FilesDigest("f1")),
        started_at=1.0,
        loaded_at=2.0 if loaded else None,
    )
    return ObservedModel(name=M, processes=(process,), files=files_of(FilesDigest("f1")))


def told(
    *wanted: DesiredModel,
    seen: ObservedModel | None = None,
    before: DesiredModel | None = None,
    reckoned: Reckoned = Reckoned(),  # noqa: B008  it is frozen
    elsewhere: tuple[Elsewhere, ...] = (),
) -> NodeChanges:
    there = Observed(processes_read=True, models={M: seen} if seen is not None else {})
    desired = Desired(node=NodeName("n"), revision="r", models=wanted, elsewhere=elsewhere)
    present = {}
    if seen is not None and before is not None:
        present = {M: replace(SERVES, desired=before, running=before.spec)}
    ahead = rehearse(there, planner_alone(desired, 5.0), 5.0)
    return compared(desired, ahead, present, reckoned)


def only(made: NodeChanges) -> Change:
    (change,) = made.changes
    return change


OLD = desired_model("m", 1)
NEW = replace(desired_model("m", 2), spec=replace(OLD.spec, extra_args={"ctx_size": 8}))


@pytest.mark.parametrize(
    ("strategy", "verb"), [(Strategy.RECREATE, Verb.RESTART), (Strategy.SURGE, Verb.SURGE)]
)
def test_another_spec_names_its_fields(strategy: Strategy, verb: Verb) -> None:
    wanted = replace(NEW, strategy=strategy)
    change = only(told(wanted, seen=running(OLD), before=replace(OLD, strategy=strategy)))

    assert (change.verb, change.state, change.fetch) == (verb, State.LOADED, False)
    assert change.fields == (FieldChange(path="extra_args.ctx_size", old=None, new=8),)


def test_secrets_are_not_told() -> None:
    env: dict[str, str | SecretRef] = {"API_KEY": "hunter22", "HF_TOKEN": SecretRef(from_env="HUB")}
    change = only(
        told(replace(NEW, spec=replace(OLD.spec, env=env)), seen=running(OLD), before=OLD)
    )

    assert [each.new for each in change.fields] == ["***", {"from_env": "HUB"}]


def test_what_restarts_nothing_is_a_reroute() -> None:
    wanted = replace(OLD, aliases=("a",), timeouts=Timeouts(ready=60.0, drain=5.0), priority=3)
    change = only(told(wanted, seen=running(OLD), before=OLD))

    assert (change.verb, change.reason) == (Verb.REROUTE, "changes without a restart")
    assert [each.path for each in change.fields] == ["aliases", "priority", "timeouts.drain"]


def test_what_is_new_is_started_and_said_to_be_fetched() -> None:
    figures = {M: Figures(download_bytes=5, cached_bytes=0, downtime_seconds=0.0)}
    change = only(told(OLD, reckoned=Reckoned(figures=figures)))

    assert (change.verb, change.fetch, change.download_bytes) == (Verb.START, True, 5)
    assert (change.state, change.fields) == (None, ())


def test_a_failure_is_told_once() -> None:
    failure = Failure(
        spec_hash=OLD.spec_hash,
        files_digest=FilesDigest("f1"),
        at=1.0,
        count=1,
        reason="killed by SIGKILL",
        during="run",
    )
    seen = ObservedModel(name=M, files=files_of(FilesDigest("f1")), failure=failure)
    there = Observed(processes_read=True, models={M: seen})
    desired = Desired(node=NodeName("n"), revision="r", models=(OLD,))
    why = "suspended by kim: killed by SIGKILL"
    present = {M: Present(state=State.ERROR, reason=why, desired=OLD)}
    ahead = rehearse(there, planner_alone(desired, 500.0), 500.0)

    reason = only(compared(desired, ahead, present)).reason
    assert reason.endswith("; 2nd try, after: killed by SIGKILL (now error)")


def test_what_goes_to_another_node_stops_for_that() -> None:
    elsewhere = (Elsewhere(name=M, reason="nodes: [far]"),)
    made = told(seen=running(OLD), before=OLD, elsewhere=elsewhere)

    assert (only(made).verb, only(made).reason) == (Verb.STOP, "nodes: [far]")
    assert made.elsewhere == ()


def test_what_is_refused_keeps_what_serves() -> None:
    seen = replace(running(OLD), refusal="no flag --no-such")
    change = only(told(NEW, seen=seen, before=OLD))

    assert (change.verb, change.reason) == (Verb.REFUSED, "no flag --no-such")


def test_what_loads_already_is_on_its_way() -> None:
    change = only(told(OLD, seen=running(OLD, loaded=False), before=OLD))

    assert change.verb is Verb.START


def test_what_a_rail_holds_back_is_the_change_that_it_will_be() -> None:
    made = told(NEW, seen=running(OLD), before=OLD, reckoned=Reckoned(held={M: "until noon"}))

    assert (only(made).verb, only(made).held) == (Verb.SURGE, "until noon")


def test_memory_before_and_after_is_a_lower_bound_where_a_need_is_not_known() -> None:
    there = Observed(
        processes_read=True,
        models={
            M: ObservedModel(
                name=M,
                files=files_of(FilesDigest("f1")),
                needs={HOST: Need(weights_bytes=30, kv_cache_bytes=None)},
            )
        },
        rooms={HOST: Room(total_bytes=100, free_bytes=90)},
    )
    desired = Desired(node=NodeName("n"), revision="r", models=(OLD,))
    made = compared(desired, rehearse(there, planner_alone(desired, 5.0), 5.0))

    assert made.host is not None
    assert (made.host.used_bytes, made.host.after_bytes, made.host.complete) == (10, 40, False)


def test_who_is_new_has_no_pid_in_a_reason() -> None:
    made = told(replace(NEW, strategy=Strategy.SURGE), seen=running(OLD), before=OLD)

    assert [each.kind for each in made.order] == ["StartBackend", "StopBackend"]
    assert made.order[1].reason.endswith("; the new process serves in its place")
