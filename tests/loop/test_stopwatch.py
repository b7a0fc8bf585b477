"""What is timed of loads and stops, and what is not."""

from dataclasses import replace

from reconciler.apply.backends import BackendView
from reconciler.apply.outcomes import BackendStopped, EffectFailed, FilesFetched
from reconciler.loop.stopwatch import KEPT, Stopwatch
from reconciler.plan.durations import FetchTime, LoadTime, StopTime
from reconciler.plan.ids import Nonce
from reconciler.plan.observed import Adoption
from tests.backend.build import model
from tests.loop.book_entries import OLD, WANTED, M, failed, view

SPEC = replace(model(M), spec_hash=WANTED.spec_hash)
TIMED = LoadTime(
    backend="b", source=SPEC.spec.source, file=None, spec_hash=WANTED.spec_hash, seconds=4.0
)
FETCHED = FilesFetched(model=M, spec_hash=WANTED.spec_hash, seconds=9.0, size_bytes=5)


def loaded(nonce: str = "n1", *, start: float = 10.0, seconds: float = 4.0) -> BackendView:
    return replace(view(nonce), started_at=start, loaded_at=start + seconds)


def stopped(nonce: str = "n0", failure: str | None = None) -> BackendStopped:
    return BackendStopped(
        model=M, nonce=Nonce(nonce), failure=failure, drain_seconds=1.5, stop_seconds=0.5
    )


def test_a_load_counts_once() -> None:
    watch = Stopwatch()
    watch.see(SPEC, [view()])
    assert watch.past(M).loads == ()
    for _ in range(3):
        watch.see(SPEC, [loaded()])
    assert watch.past(M).loads == (TIMED,)


def test_only_the_last_ones_are_kept() -> None:
    watch = Stopwatch()
    for number in range(KEPT + 3):
        watch.see(SPEC, [loaded(f"n{number}", seconds=float(number))])
        watch.book(stopped(), at=99.0)
    kept = watch.past(M)
    assert [each.seconds for each in kept.loads] == [float(n) for n in range(3, KEPT + 3)]
    assert kept.stops == (StopTime(drain_seconds=1.5, seconds=0.5),) * KEPT


def test_what_another_agent_has_loaded_is_not_timed() -> None:
    watch = Stopwatch()
    adopted = replace(loaded(), adopted=Adoption(at=5.0, was_loaded=True))
    watch.see(SPEC, [adopted])
    watch.see(SPEC, [replace(adopted, loaded_at=99.0)])
    assert watch.past(M).loads == ()


def test_a_load_of_another_spec_than_is_known_is_not_timed() -> None:
    watch = Stopwatch()
    watch.see(SPEC, [replace(loaded(), instance=OLD)])
    assert watch.past(M).loads == ()


def test_the_first_load_after_a_download_is_marked() -> None:
    watch = Stopwatch()
    watch.book(FETCHED, at=9.0)
    watch.see(SPEC, [loaded("n1")])
    watch.see(SPEC, [loaded("n2")])
    assert [each.after_fetch for each in watch.past(M).loads] == [True, False]


def test_a_successor_waits_for_the_memory_of_the_one_before() -> None:
    watch = Stopwatch()
    watch.book(stopped(), at=8.0)
    watch.see(SPEC, [loaded(start=10.0)])
    assert watch.past(M).loads == (replace(TIMED, waited_seconds=2.0),)
    assert watch.past(M).stops == (StopTime(drain_seconds=1.5, seconds=0.5),)


def test_what_starts_much_later_waited_for_something_else() -> None:
    for between in (None, FETCHED, failed("start")):
        watch = Stopwatch()
        watch.book(stopped(), at=8.0)
        if isinstance(between, FilesFetched | EffectFailed):
            watch.book(between, at=9.0)
        watch.see(SPEC, [loaded(start=10.0 if between else 1000.0)])
        assert watch.past(M).loads[0].waited_seconds == 0.0


def test_a_disabled_model_waits_for_nothing() -> None:
    watch = Stopwatch()
    watch.book(stopped(), at=8.0)
    watch.see(replace(SPEC, enabled=False), [])
    watch.see(SPEC, [loaded(start=10.0)])
    assert watch.past(M).loads == (TIMED,)


def test_the_end_of_the_old_one_after_a_surge_makes_nobody_wait() -> None:
    watch = Stopwatch()
    watch.book(stopped(), at=8.0)
    watch.see(SPEC, [loaded("n1")])
    watch.book(stopped("n1"), at=20.0)
    watch.see(SPEC, [loaded("n2", start=15.0)])
    watch.see(SPEC, [loaded("n3", start=30.0)])
    assert [each.waited_seconds for each in watch.past(M).loads] == [2.0, 0.0, 0.0]


def test_a_stop_that_is_a_failure_says_nothing_of_a_change() -> None:
    watch = Stopwatch()
    watch.book(stopped(failure="hung"), at=8.0)
    watch.see(SPEC, [loaded(start=10.0)])
    assert (watch.past(M).loads, watch.past(M).stops) == ((TIMED,), ())


def test_a_download_is_timed_by_what_came_for_it() -> None:
    watch = Stopwatch()
    watch.book(replace(FETCHED, size_bytes=0), at=9.0)
    watch.book(FETCHED, at=9.0)
    assert watch.past(M).fetches == (FetchTime(size_bytes=5, seconds=9.0),)


def test_a_model_that_is_gone_is_forgotten() -> None:
    watch = Stopwatch()
    watch.see(SPEC, [loaded()])
    watch.keep_only([M])
    assert watch.past(M).loads
    watch.keep_only([])
    assert watch.past(M).loads == ()
