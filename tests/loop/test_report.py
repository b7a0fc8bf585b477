"""What is published of a model's files: which are in force, and how far others are."""

from dataclasses import replace
from typing import Any

import pytest

from reconciler.apply.backends import BackendView
from reconciler.apply.pushes import Noticed
from reconciler.backend.inventory import Inventory
from reconciler.loop.report import ModelFacts, model_status
from reconciler.plan.actions import Draining, Outlook, Target
from reconciler.plan.durations import Durations, LoadTime
from reconciler.plan.ids import FilesDigest, SpecHash
from reconciler.plan.observed import EffectKind, FilesCached, InFlight, Push
from reconciler.plan.phase import State
from reconciler.status import Doing, ModelStatus, Progress
from tests.backend.build import model
from tests.loop.book_entries import M, view
from tests.loop.test_newer_pushes import FILES

HALF = Progress(
    doing=Doing.FETCH,
    done_bytes=500_000_000,
    total_bytes=1_000_000_000,
    bytes_per_second=50e6,
    seconds_left=10.0,
)
NOTICED = Noticed(
    push=Push(digest=FilesDigest("p"), revision=FilesDigest("q"), verified=True), reason="news"
)


def status_of(**facts: Any) -> ModelStatus:
    return reported(Outlook(model=M, state=State.LOADED, reason="serves"), **facts)


def reported(outlook: Outlook, **facts: Any) -> ModelStatus:
    return model_status(outlook, ModelFacts(desired=model(), **facts), Inventory(), wall=str)


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (FILES, ("new", "all", True)),
        (replace(FILES, verified=False), ("new", "all", False)),
        (replace(FILES, revision=None, verified=False), ("new", None, None)),
        (None, (None, None, None)),
    ],
    ids=["catalog", "no catalog", "in place", "not here"],
)
def test_digests_and_whether_they_are_verified_are_told(
    files: FilesCached | None, told: tuple[object, ...]
) -> None:
    status = status_of(files=files)

    assert (status.digest, status.revision, status.verified) == told


def test_a_push_that_comes_beside_what_serves_says_how_far_it_is() -> None:
    quiet = status_of(files=FILES, noticed=NOTICED)
    coming = status_of(files=FILES, noticed=replace(NOTICED, progress=HALF))

    assert (quiet.newer and quiet.newer.reason, quiet.progress) == ("news", None)
    assert coming.progress == HALF
    assert coming.newer is not None
    assert coming.newer.reason == "news; 476.8 of 953.7 MiB (50 %), 48 MiB/s, 10 s left"


def test_what_an_earlier_agent_left_is_shown_with_its_pid() -> None:
    """`kill` and `/proc` ask for it, and nothing else of the model lives."""
    left = Outlook(model=M, state=State.UNLOADING, reason="pid 4 was left", left_pid=4)

    assert reported(left).pid == 4
    assert reported(left).endpoint is None


OLD, NEW = view("old", loaded=True), replace(view("new"), progress="health: 503 Loading model")


def stop_of(process: BackendView) -> InFlight:
    spec_hash = process.instance.spec_hash
    return InFlight(kind=EffectKind.STOP, spec_hash=spec_hash, since=7.0, nonce=process.nonce)


def test_what_drains_is_told_from_the_tick_on_that_stops_it_until_it_is_gone() -> None:
    """Its stop is under way before the next plan knows of it."""
    drains = Draining(
        nonce=OLD.nonce, pid=4, spec_hash=OLD.instance.spec_hash, reason="spec changed"
    )
    outlook = Outlook(
        model=M, state=State.LOADED, reason="serves", process=NEW.nonce, draining=(drains,)
    )
    loaded = replace(NEW, loaded_at=9.0, progress="")

    begun = reported(outlook, views=(OLD, loaded), effect=stop_of(OLD))
    held_up = reported(outlook, views=(OLD, loaded))
    gone = reported(outlook, views=(loaded,))

    (told,) = begun.draining
    assert (told.pid, told.reason, told.since) == (4, "spec changed", "7.0")
    assert [each.since for each in held_up.draining] == [None]
    assert gone.draining == ()


def test_of_two_processes_the_one_that_the_plan_names_serves() -> None:
    """One effect a model: the stop of the one must not hide the other's endpoint."""
    target = Target(spec_hash=SpecHash("1:new"), state=State.LOADING, reason="loads (pid 8)")
    before = Outlook(
        model=M,
        state=State.LOADED,
        reason="serves",
        process=OLD.nonce,
        coming=NEW.nonce,
        target=target,
    )
    loaded = replace(NEW, loaded_at=9.0, progress="")
    after = Outlook(model=M, state=State.LOADED, reason="serves", process=NEW.nonce)

    while_it_loads = reported(before, views=(OLD, NEW))
    while_the_old_one_stops = reported(after, views=(OLD, loaded), effect=stop_of(OLD))
    while_it_stops_itself = reported(after, views=(loaded,), effect=stop_of(NEW))

    assert while_it_loads.endpoint is not None
    assert while_it_loads.endpoint.nonce == OLD.nonce
    assert while_it_loads.target is not None
    assert while_it_loads.target.reason == "loads (pid 8); health: 503 Loading model"
    assert while_it_loads.target.pid == NEW.pid
    assert while_the_old_one_stops.endpoint is not None
    assert while_the_old_one_stops.endpoint.nonce == NEW.nonce
    assert while_it_stops_itself.endpoint is None


def test_what_a_failure_has_told_is_not_told_again() -> None:
    """In the tick that orders the stop the process still lacks it."""
    why = f"not ready within 5s: {NEW.progress}"
    stops = Outlook(model=M, state=State.UNLOADING, reason=f"stops; {why}", process=NEW.nonce)
    target = Target(spec_hash=SpecHash("1:new"), state=State.PENDING, reason=f"{why}; goes on")
    beside = replace(stops, process=OLD.nonce, coming=NEW.nonce, target=target)

    alone = reported(stops, views=(NEW,))
    surging = reported(beside, views=(OLD, NEW))

    assert alone.reason == stops.reason
    assert surging.target is not None
    assert surging.target.reason == target.reason


def test_what_a_load_may_take_is_of_the_backend_that_would_run_it() -> None:
    load = LoadTime(
        backend="b", source=model().spec.source, file=None, spec_hash=SpecHash("1:0"), seconds=9.0
    )
    past = Durations(loads=(load, replace(load, backend="other", seconds=70.0)))
    assert status_of(views=(OLD,), past=past).detail.expected_load_seconds == 9.0
    assert status_of(views=(OLD,)).detail.expected_load_seconds is None
