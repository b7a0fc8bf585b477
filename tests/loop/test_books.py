"""What the loop books of exits and outcomes, and for which instance."""

from dataclasses import replace

from reconciler.apply.outcomes import BackendStopped, FilesFetched
from reconciler.loop.books import Books
from reconciler.plan.desired import OnFailure
from reconciler.plan.ids import ModelName, Nonce
from reconciler.plan.observed import Adoption
from tests.loop.book_entries import OLD, WANTED, M, books, books_of, exited, failed, view


def test_what_we_have_stopped_resumes_until_it_is_started_again() -> None:
    made = books()
    made.see(view(instance=OLD))
    assert not made.resuming(M)
    made.book_outcome(BackendStopped(model=M, nonce=Nonce("n1")), at=1.0)
    assert made.resuming(M)
    made.see(view("n2"))
    assert not made.resuming(M)
    made.book_outcome(BackendStopped(model=M, nonce=Nonce("n2"), failure="hung"), at=2.0)
    assert not made.resuming(M)


def test_an_exit_is_a_failure_with_its_last_lines() -> None:
    made = books()
    made.see(view())
    made.book_exit(exited("load"))
    failure = made.failure(M)
    assert failure is not None
    assert (failure.reason, failure.during, failure.count) == ("exited with code 1", "load", 1)
    assert made.last_lines(M) == ("bad flag",)


def test_an_engine_that_refuses_its_arguments_is_blocked_at_once() -> None:
    """R7: a bad flag is permanent. vLLM needs a minute and a half to say so."""
    made = books()
    made.see(view())
    said = "argument --max-num-seqs: invalid int value: '4.5'"
    last_lines = ("usage: vllm serve [model_tag] [options]", f"vllm serve: error: {said}")
    made.book_exit(replace(exited("load"), code=2, last_lines=last_lines))
    failure = made.failure(M)
    assert failure is not None
    assert (failure.permanent, failure.exited, failure.count) == (True, True, 1)
    assert failure.reason.endswith(said)


def test_another_exit_with_the_same_code_is_tried_again() -> None:
    made = books()
    made.see(view())
    made.book_exit(replace(exited("load"), code=2, last_lines=("cannot open the socket",)))
    failure = made.failure(M)
    assert failure is not None
    assert not failure.permanent


def test_an_exit_that_was_asked_for_is_none() -> None:
    made = books()
    made.see(view())
    made.book_exit(exited("stop"))
    assert made.failure(M) is None


def test_a_stop_for_a_reason_is_a_failure_of_the_instance() -> None:
    made = books()
    made.see(view())
    made.book_exit(exited("stop"))
    stopped = BackendStopped(model=M, nonce=Nonce("n1"), failure="not ready within 2s")
    made.book_outcome(stopped, at=11.0)
    failure = made.failure(M)
    assert failure is not None
    assert (failure.reason, failure.during) == ("not ready within 2s", "load")


def test_what_is_not_wanted_any_more_leaves_the_block_of_what_is() -> None:
    made = books()
    for _ in range(3):
        made.book_exit(exited("load"))
    made.book_exit(exited("run", nonce="n2", instance=OLD))
    made.book_outcome(failed("fetch", OLD.spec_hash), at=12.0)
    failure = made.failure(M)
    assert failure is not None
    assert failure.permanent


def test_a_stop_that_failed_is_remembered_until_one_succeeds() -> None:
    made = books()
    made.see(view(instance=OLD))
    made.book_outcome(failed("stop", OLD.spec_hash), at=12.0)
    failure = made.failure(M)
    assert failure is not None
    assert failure.during == "stop"
    made.book_outcome(BackendStopped(model=M, nonce=Nonce("n1")), at=13.0)
    assert made.failure(M) is None


def test_damaged_files_block_until_the_hub_has_mended_them() -> None:
    made = books()
    made.book_outcome(replace(failed("fetch"), permanent=True, damaged=True), at=1.0)
    assert made.hurry_fetches() is False
    assert made.failures_in_a_row(M) == 1

    mended = made.mend(M)

    assert mended is not None
    assert (mended.permanent, mended.damaged, made.failure(M)) == (True, True, None)
    assert made.mend(M) is None


def test_what_the_hub_mends_forgives_no_other_failure() -> None:
    made = books()
    made.book_outcome(replace(failed("start"), permanent=True), at=1.0)

    assert made.mend(M) is None

    assert made.failures_in_a_row(M) == 1


def test_a_fetch_that_went_well_ends_the_row_of_failed_ones() -> None:
    made = books()
    made.book_outcome(failed("fetch"), at=1.0)
    assert made.failures_in_a_row(M) == 1
    made.book_outcome(FilesFetched(model=M, spec_hash=WANTED.spec_hash, seconds=1.0), at=2.0)
    assert made.failure(M) is None


def test_restarts_count_starts_after_the_first() -> None:
    made = books()
    for nonce in ("n1", "n1"):
        made.see(view(nonce))
    made.book_exit(exited("load", "n1"))
    made.see(view("n2"))
    assert made.restarts(M) == 1


def test_what_was_loaded_once_is_never_blocked_by_exits_during_a_load() -> None:
    made = books()
    made.see(view(loaded=True))
    for _ in range(4):
        made.book_exit(exited("load"))
    failure = made.failure(M)
    assert failure is not None
    assert (failure.ever_loaded, failure.permanent) == (True, False)


def test_a_model_that_is_gone_is_forgotten() -> None:
    made = books()
    made.book_exit(exited("load"))
    made.keep_only(())
    assert made.failure(M) is None


def test_an_operator_lifts_the_failure_of_one_model_only() -> None:
    other = ModelName("other")
    made = Books()
    made.want({M: [WANTED.spec_hash], other: [WANTED.spec_hash]})
    for name in (M, other):
        made.book_outcome(replace(failed("fetch"), model=name), at=1.0)
    assert set(made.forgive(M)) == {M}
    assert made.failure(M) is None
    assert made.failure(other) is not None
    assert set(made.forgive(None)) == {other}


def test_a_restart_is_counted_by_what_made_it_necessary() -> None:
    made = books()
    made.see(view("n1", loaded=True))
    made.book_exit(exited("run", "n1"))
    made.see(view("n2"))
    made.book_exit(exited("load", "n2"))
    made.see(view("n3"))
    made.book_exit(exited("stop", "n3"))
    made.see(view("n4"))
    assert made.restart_causes(M) == (("changed", 1), ("crashed", 1), ("load_failed", 1))


def test_a_hang_is_a_failure_of_the_run_and_its_last_words_are_kept() -> None:
    made = books()
    made.see(view(loaded=True))
    made.book_exit(exited("stop"))
    made.book_outcome(
        BackendStopped(model=M, nonce=Nonce("n1"), failure="no progress", ran_seconds=5.0), at=11.0
    )
    failure = made.failure(M)
    assert failure is not None
    assert (failure.during, failure.reason, failure.count) == ("run", "no progress", 1)
    assert made.last_lines(M) == ("bad flag",)
    made.see(view("n2", loaded=True))
    assert made.restart_causes(M) == (("hung", 1),)


def test_hangs_one_after_another_are_a_row_unless_it_had_worked_for_long() -> None:
    made = books()
    counts = []
    for number, ran_seconds in enumerate((5.0, 5.0, 599.0, 600.0)):
        nonce = f"n{number}"
        made.see(view(nonce, loaded=True))
        made.book_exit(exited("stop", nonce))
        made.book_outcome(
            BackendStopped(
                model=M, nonce=Nonce(nonce), failure="no progress", ran_seconds=ran_seconds
            ),
            at=11.0,
        )
        counts.append(made.failures_in_a_row(M))
    assert counts == [1, 2, 3, 1]


def test_the_last_failures_can_be_looked_up_after_a_success() -> None:
    made = books()
    made.book_exit(exited("load"))
    made.forgive(None)
    assert [failure.reason for failure in made.recent_failures(M)] == ["exited with code 1"]


def test_failed_downloads_are_tried_at_once_when_there_may_be_room() -> None:
    made = books()
    made.book_outcome(failed("fetch"), at=11.0)
    assert made.hurry_fetches()
    assert made.failure(M) is None
    assert not made.hurry_fetches()


def test_room_is_no_cure_for_what_does_not_load() -> None:
    made = books()
    made.see(view())
    made.book_exit(exited("load"))
    assert not made.hurry_fetches()
    assert made.failure(M) is not None


def test_to_adopt_is_no_restart_and_what_follows_it_is_one() -> None:
    kept = books()
    for nonce in ("n1", "n2"):  # two: an agent died in the middle of a change
        kept.see(replace(view(nonce), adopted=Adoption(at=0.0, was_loaded=True)))
    assert kept.restarts(M) == 0

    kept.book_outcome(BackendStopped(model=M, nonce=Nonce("n2")), at=1.0)
    kept.book_exit(exited("run"))
    kept.see(view("n3"))

    assert kept.restarts(M) == 1
    assert kept.restart_causes(M) == (("crashed", 1),)


def test_what_an_earlier_agent_had_loaded_is_never_blocked_by_its_exits() -> None:
    kept = books()
    for number in range(4):
        kept.see(replace(view(f"n{number}"), adopted=Adoption(at=0.0, was_loaded=True)))
        kept.book_exit(exited("load", f"n{number}"))

    failure = kept.failure(M)
    assert failure is not None
    assert (failure.count, failure.permanent) == (4, False)


def test_a_shortage_blocks_no_model_that_is_to_be_tried_once_only() -> None:
    made = books_of(OnFailure.STOP)
    made.book_outcome(replace(failed("start"), shortage=True), at=1.0)
    failure = made.failure(M)
    assert failure is not None
    assert not failure.permanent
    made.book_outcome(failed("start"), at=2.0)
    failure = made.failure(M)
    assert failure is not None
    assert failure.permanent
