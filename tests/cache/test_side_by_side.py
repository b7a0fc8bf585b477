"""Several files at once, and what one failure does to the others."""

import threading
from collections.abc import Callable

import pytest

from reconciler.cache.side_by_side import side_by_side


def test_as_many_as_asked_are_under_way_at_once() -> None:
    together = threading.Barrier(3, timeout=30)
    done: list[int] = []

    def work(thing: int, _is_over: Callable[[], bool]) -> None:
        together.wait()
        done.append(thing)

    side_by_side(work, range(6), at_once=3)

    assert sorted(done) == list(range(6))


def test_one_at_a_time_keeps_the_order_and_the_thread() -> None:
    seen: list[tuple[int, threading.Thread]] = []

    side_by_side(
        lambda thing, _: seen.append((thing, threading.current_thread())), range(4), at_once=1
    )

    assert seen == [(thing, threading.current_thread()) for thing in range(4)]


def test_a_failure_ends_the_others_and_is_what_is_raised() -> None:
    begun: list[int] = []
    both = threading.Barrier(2, timeout=30)

    def work(thing: int, is_over: Callable[[], bool]) -> None:
        begun.append(thing)
        if thing < 2:
            both.wait()
        if thing == 0:
            raise OSError("the first failure")
        while not is_over():
            pass
        raise TimeoutError("ended because of it")

    with pytest.raises(OSError, match="the first failure"):
        side_by_side(work, range(5), at_once=2)

    assert sorted(begun) == [0, 1]


def test_nothing_to_do_is_done() -> None:
    side_by_side(lambda _thing, _is_over: None, [], at_once=8)
