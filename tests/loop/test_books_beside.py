"""What the loop books of a model whose last good spec is there, or serves meanwhile."""

from reconciler.apply.outcomes import BackendStopped
from reconciler.plan.desired import OnFailure
from reconciler.plan.ids import Nonce
from tests.loop.book_entries import OLD, WANTED, M, books, books_of, exited, failed, view


def test_each_instance_keeps_its_own_failure() -> None:
    made = books_of(OnFailure.REVERT)
    for _ in range(3):
        made.book_exit(exited("load"))
    made.book_exit(exited("load", "n2", OLD))
    block, tried = made.lasting(M)
    assert (block.spec_hash, block.count) == (WANTED.spec_hash, 3)
    assert (tried.spec_hash, tried.count) == (OLD.spec_hash, 1)


def test_a_try_costs_what_was_stopped_for_it_and_nothing_where_that_still_serves() -> None:
    made = books_of(OnFailure.REVERT)
    made.see(view("old", OLD, loaded=True))
    made.book_exit(exited("load"))
    beside = made.failure(M)
    made.book_exit(exited("stop", "old", OLD))
    made.book_outcome(BackendStopped(model=M, nonce=Nonce("old")), at=1.0)
    made.book_exit(exited("load"))
    after = made.failure(M)
    assert beside is not None
    assert after is not None
    assert (beside.costly, after.costly) == (False, True)


def test_stop_blocks_what_does_not_come_up_and_not_what_crashes() -> None:
    made = books_of(OnFailure.STOP)
    made.book_exit(exited("load"))
    assert len(made.lasting(M)) == 1
    crashed = books_of(OnFailure.STOP)
    crashed.see(view(loaded=True))
    crashed.book_exit(exited("run"))
    assert [each.permanent for each in crashed.lasting(M)] == [False]


def test_where_a_stop_fails_the_block_is_not_forgotten() -> None:
    made = books()
    for _ in range(3):
        made.book_exit(exited("load"))
    made.book_outcome(failed("stop", OLD.spec_hash), at=12.0)
    made.book_outcome(BackendStopped(model=M, nonce=Nonce("n9")), at=13.0)
    assert len(made.lasting(M)) == 1


def test_a_start_beside_what_serves_is_for_a_change_whatever_was_before() -> None:
    made = books()
    made.see(view("n1"))
    made.book_exit(exited("run", "n1"))
    made.see(view("n2", OLD, loaded=True))
    made.see(view("n3"))
    made.see(view("n3", loaded=True))
    assert made.restart_causes(M) == (("changed", 1), ("crashed", 1))


def test_tries_beside_what_serves_are_no_restarts_of_it() -> None:
    made = books_of(OnFailure.REVERT)
    made.see(view("old", OLD, loaded=True))
    made.see(view("n1"))
    made.book_exit(exited("load", "n1"))
    made.see(view("n2"))
    made.book_exit(exited("stop", "n2"))
    made.book_outcome(BackendStopped(model=M, nonce=Nonce("n2"), failure="not ready"), at=1.0)
    made.see(view("n3"))
    assert made.restart_causes(M) == ()
    failure = made.failure(M)
    assert failure is not None
    assert failure.count == 2
    made.see(view("n3", loaded=True))
    assert made.restart_causes(M) == (("changed", 1),)
    made.book_exit(exited("stop", "old", OLD))
    made.book_outcome(BackendStopped(model=M, nonce=Nonce("old")), at=1.0)
    made.book_exit(exited("run", "n3"))
    made.see(view("n4"))
    assert made.restart_causes(M) == (("changed", 1), ("crashed", 1))


def test_what_loads_beside_one_that_crashes_takes_its_place_at_once() -> None:
    made = books_of(OnFailure.REVERT)
    made.see(view("old", OLD, loaded=True))
    made.see(view("n1"))
    made.book_exit(exited("run", "old", OLD))
    assert made.restart_causes(M) == (("crashed", 1),)
    made.see(view("n1", loaded=True))
    assert made.restarts(M) == 1


def test_what_is_stopped_for_one_that_serves_already_does_not_resume() -> None:
    made = books()
    made.see(view("n1", OLD, loaded=True))
    made.see(view("n2", loaded=True))
    made.book_exit(exited("stop", "n1", OLD))
    made.book_outcome(BackendStopped(model=M, nonce=Nonce("n1")), at=5.0)
    assert not made.resuming(M)
