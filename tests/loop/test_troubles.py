"""What is told of a model that goes back to its last good spec (R7, R8)."""

from dataclasses import replace

import pytest

from reconciler.events import EventKind, Journal
from reconciler.loop.books import Books
from reconciler.loop.reverts import Reversion
from reconciler.loop.troubles import Troubles
from reconciler.plan.actions import Outlook
from reconciler.plan.desired import Desired, DesiredModel, OnFailure
from reconciler.plan.ids import NodeName, Nonce, SpecHash
from reconciler.plan.observed import Failure
from reconciler.plan.phase import State
from reconciler.plan.revert import Trouble
from tests.loop.book_entries import WANTED as INSTANCE
from tests.loop.book_entries import M, books, exited
from tests.plan.test_revert import GOOD, NAME, WANTED

REVERSION = Reversion(wanted=WANTED, good=GOOD, trouble=Trouble(reason="exited with code 3"))


def outlook(state: State, *, runs: bool = False) -> Outlook:
    return Outlook(model=NAME, state=state, reason="so", process=Nonce("n") if runs else None)


def given(*models: DesiredModel) -> Desired:
    return Desired(node=NodeName("n"), revision="r", models=models)


@pytest.mark.parametrize(
    ("now", "suspended", "said"),
    [
        (outlook(State.LOADED, runs=True), False, "runs its last good spec 1:old instead of 1:new"),
        (outlook(State.LOADED, runs=True), True, "runs its last good spec"),
        (outlook(State.LOADING, runs=True), False, "goes back to its last good spec"),
        (outlook(State.PENDING), False, "goes back to its last good spec"),
        (outlook(State.PENDING), True, None),
        (outlook(State.ERROR), False, None),
        (outlook(State.BLOCKED), False, None),
    ],
)
def test_a_model_is_degraded_while_its_last_good_spec_serves_or_comes(
    now: Outlook, suspended: bool, said: str | None
) -> None:
    told = REVERSION.told(now, suspended=suspended)
    assert (told is None) == (said is None)
    assert (said or "") in (told or "")


def test_a_crash_loop_is_told_once_over_agents_too() -> None:
    told = []
    restored: tuple[Failure, ...] = ()
    for exits in (4, 2):
        journal, made = Journal(node=NodeName("n"), now=lambda: "t"), books()
        made.restore(M, failures=restored, loaded=[INSTANCE], last_good=None)
        troubles = Troubles(journal, made)
        for _ in range(exits):
            made.book_exit(exited("run"))
            troubles.tell(made, {}, {}, None)
        restored = made.lasting(M)
        told.append([event.reason for event in journal.after(0).events])
    assert told == [["crash loop, 3 failures in a row: exited with code 1"], []]
    assert restored[0].count == 6


def test_nothing_is_told_of_a_last_good_spec_that_never_came() -> None:
    journal = Journal(node=NodeName("n"), now=lambda: "t")
    known = Books()
    troubles = Troubles(journal, known)
    troubles.tell(known, {NAME: REVERSION}, {}, given(WANTED))
    troubles.tell(known, {}, {}, given(WANTED))
    assert journal.after(0).events == ()


@pytest.mark.parametrize(
    ("models", "reason"),
    [
        ((), "the model has gone from the manifest"),
        ((WANTED,), "what the manifest wants is tried again"),
        (
            (replace(WANTED, spec=GOOD.spec, spec_hash=GOOD.spec_hash),),
            "the manifest has the last good spec again",
        ),
        (
            (replace(WANTED, spec_hash=SpecHash("1:third")),),
            "the manifest wants another spec by now, and that is tried",
        ),
        (
            (replace(WANTED, on_failure=OnFailure.KEEP),),
            "by the manifest, its last good spec is not to come back",
        ),
    ],
    ids=["gone", "tried again", "went back", "another", "keep"],
)
def test_the_end_of_a_revert_says_why_and_a_crash_meanwhile_is_no_end(
    models: tuple[DesiredModel, ...], reason: str
) -> None:
    journal = Journal(node=NodeName("n"), now=lambda: "t")
    known = Books()
    troubles = Troubles(journal, known)
    for told in ({NAME: "goes back"}, {}, {NAME: "runs"}):
        troubles.tell(known, {NAME: REVERSION}, told, given(WANTED))
    troubles.tell(known, {}, {}, given(*models))
    told_of = [(event.kind, event.reason) for event in journal.after(0).events]
    assert told_of == [
        (EventKind.MODEL_REVERTED, "goes back"),
        (EventKind.REVERT_ENDED, reason),
    ]
