"""Retry as a pure function: the delays, the row of failures, the block (R7)."""

import pytest

from reconciler.plan.ids import FilesDigest, SpecHash
from reconciler.plan.observed import Failure
from reconciler.plan.retry import after_failure, next_attempt_at, told

SPEC = SpecHash("1:a")
FILES = FilesDigest("f1")


def failure(
    count: int = 1,
    *,
    during: str = "load",
    permanent: bool = False,
    ever_loaded: bool = False,
    retry_after_seconds: float | None = None,
) -> Failure:
    return Failure(
        spec_hash=SPEC,
        files_digest=None if during == "fetch" else FILES,
        at=1000.0,
        count=count,
        reason="exited with code 1",
        during=during,
        permanent=permanent,
        ever_loaded=ever_loaded,
        retry_after_seconds=retry_after_seconds,
    )


def delay(failed: Failure, key: str = "llm") -> float:
    due = next_attempt_at(failed, key=key)
    assert due is not None
    return due - failed.at


def failed_again(
    previous: Failure | None,
    during: str = "load",
    *,
    spec: SpecHash = SPEC,
    files: FilesDigest | None = FILES,
    permanent: bool = False,
    ever_loaded: bool = False,
    loaded_seconds: float | None = None,
) -> Failure:
    return after_failure(
        previous,
        spec_hash=spec,
        files_digest=None if during == "fetch" else files,
        at=2000.0,
        reason="exited with code 1",
        during=during,
        permanent=permanent,
        ever_loaded=ever_loaded,
        loaded_seconds=loaded_seconds,
    )


def costly_failure(during: str, previous: Failure | None, *, exited: bool = False) -> Failure:
    return after_failure(
        previous,
        spec_hash=SPEC,
        files_digest=FILES,
        at=2000.0,
        reason=f"cannot {during}",
        during=during,
        exited=exited,
        costly=True,
    )


def test_tries_that_stop_what_serves_are_far_apart_and_three() -> None:
    failed: Failure | None = None
    delays = []
    for during in ("start", "load", "start"):
        failed = costly_failure(during, failed)
        delays.append(delay(failed))
    assert delays == [300.0, 600.0, 1200.0]
    last = costly_failure("load", failed)
    assert (last.permanent, last.count) == (True, 4)


def test_the_third_exit_blocks_also_where_a_try_stops_what_serves() -> None:
    failed: Failure | None = None
    for _ in range(3):
        failed = costly_failure("load", failed, exited=True)
    assert failed is not None
    assert failed.permanent


def test_a_crash_loop_is_called_so_with_the_reasons_before_it() -> None:
    failed: Failure | None = None
    for reason in ("killed by SIGSEGV", "killed by SIGSEGV", "exited with code 1"):
        assert failed is None or not failed.is_crash_loop
        failed = after_failure(
            failed,
            spec_hash=SPEC,
            files_digest=FILES,
            at=1.0,
            reason=reason,
            during="run",
            loaded_seconds=1.0,
        )
    assert failed is not None
    assert told(failed) == (
        "crash loop, 3 failures in a row: exited with code 1; before that: killed by SIGSEGV"
    )


@pytest.mark.parametrize(
    ("count", "seconds"),
    [(1, 5), (2, 10), (3, 20), (4, 40), (5, 80), (6, 160), (7, 300), (8, 300), (5000, 300)],
)
def test_delay_doubles_from_five_seconds_to_five_minutes(count: int, seconds: float) -> None:
    assert 0.8 * seconds <= delay(failure(count, during="fetch")) <= 1.2 * seconds


def test_jitter_spreads_models_and_is_the_same_each_time() -> None:
    failed = failure(during="fetch")
    delays = [delay(failed, key=f"model-{number}") for number in range(200)]

    assert delays == [delay(failed, key=f"model-{number}") for number in range(200)]
    assert max(delays) - min(delays) > 1.5
    assert min(delays) >= 4.0
    assert max(delays) <= 6.0


def test_wish_of_the_other_side_is_a_lower_bound() -> None:
    assert delay(failure(during="fetch", retry_after_seconds=120.0)) == 120.0
    assert delay(failure(6, during="fetch", retry_after_seconds=1.0)) > 100.0


def test_permanent_failure_is_not_tried_again() -> None:
    assert next_attempt_at(failure(permanent=True), key="llm") is None


def test_third_exit_in_a_row_during_a_first_load_blocks() -> None:
    """Scenario 5 (llama-swap#100): a bad flag must not be waited for, nor tried for ever."""
    first = failed_again(None)
    second = failed_again(first)
    third = failed_again(second)

    assert [each.count for each in (first, second, third)] == [1, 2, 3]
    assert [each.permanent for each in (first, second, third)] == [False, False, True]


def test_what_was_loaded_here_before_is_tried_every_five_minutes_after_the_third() -> None:
    """Scenario 8 (llama-swap#92, #120): "failed" is never final for what once worked."""
    failed: Failure | None = None
    for _ in range(4):
        failed = failed_again(failed, ever_loaded=True)

    assert failed is not None
    assert not failed.permanent
    assert 240.0 <= delay(failed) <= 360.0
    assert delay(failure(2, ever_loaded=True)) <= 12.0


def test_crash_of_a_loaded_process_is_remembered_as_once_loaded() -> None:
    crash = failed_again(None, "run", loaded_seconds=3.0)
    loads = crash
    for _ in range(5):
        loads = failed_again(loads)

    assert crash.ever_loaded
    assert loads.count == 6
    assert not loads.permanent


def test_ten_minutes_of_health_start_a_new_row() -> None:
    assert failed_again(failure(6, during="run"), "run", loaded_seconds=600.0).count == 1
    assert failed_again(failure(6, during="run"), "run", loaded_seconds=599.0).count == 7


def test_failed_downloads_do_not_count_against_the_load_that_follows() -> None:
    assert failed_again(failure(9, during="fetch"), "load") == failed_again(None, "load")


def test_ports_taken_do_not_count_as_exits_during_load() -> None:
    failed = failed_again(failed_again(failure(2, during="start"), "start"), "load")

    assert failed.count == 1
    assert not failed.permanent


@pytest.mark.parametrize(
    ("spec", "files"), [(SpecHash("1:b"), FILES), (SPEC, FilesDigest("f2"))], ids=["spec", "files"]
)
def test_another_instance_starts_a_row_of_its_own(spec: SpecHash, files: FilesDigest) -> None:
    """Scenario 42 (flux2#1577): a fix must not inherit what the broken revision did."""
    failed = failed_again(failure(2, ever_loaded=True), spec=spec, files=files)

    assert (failed.count, failed.ever_loaded, failed.permanent) == (1, False, False)


def test_refusal_is_permanent_at_once() -> None:
    assert failed_again(None, "start", permanent=True).permanent


def shortage(previous: Failure | None, *, costly: bool) -> Failure:
    return after_failure(
        previous,
        spec_hash=SPEC,
        files_digest=FILES,
        at=2000.0,
        reason="no space left on device",
        during="start",
        costly=costly,
        shortage=True,
    )


def test_tries_that_stopped_nothing_are_none_of_the_three() -> None:
    """A surge that fails before its process is there costs nothing, however often."""
    failed: Failure | None = None
    for _ in range(5):
        failed = failed_again(failed, "start")
    delays = []
    for _ in range(3):
        failed = costly_failure("start", failed)
        delays.append(delay(failed))
    assert delays == [300.0, 600.0, 1200.0]
    assert costly_failure("start", failed).permanent


def test_what_the_node_lacks_just_now_blocks_nothing_and_is_none_of_the_three() -> None:
    failed: Failure | None = None
    for costly in (False, False, False, *(True,) * 9):
        failed = shortage(failed, costly=costly)
        assert not failed.permanent
    assert failed is not None
    assert (failed.count, delay(failed)) == (12, 300.0)
    for _ in range(3):
        failed = costly_failure("start", failed)
        assert not failed.permanent
    failed = shortage(failed, costly=True)
    assert not failed.permanent
    assert costly_failure("start", failed).permanent


def test_how_often_is_told_of_the_row_not_of_the_last_cause() -> None:
    assert told(failure(2)) == "exited with code 1, 2nd failure in a row"
