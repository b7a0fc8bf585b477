"""What all fetches of a node take together."""

import threading
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from reconciler.hub.connections import Connections, Share
from reconciler.hub.rate_limit import RateLimit


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_bytes_pass_at_the_rate_whoever_asks() -> None:
    """kserve#6137 (scenario 33): a limit that is declared is heeded."""
    clock = Clock()
    rate = RateLimit(1000.0, clock=clock, sleep=clock.sleep)

    for _ in range(11):
        rate.take(500)

    assert round(clock.now - 100.0, 6) == 5.0


def test_what_was_not_used_is_not_saved_up() -> None:
    clock = Clock()
    rate = RateLimit(1000.0, clock=clock, sleep=clock.sleep)
    clock.now += 3600.0

    for _ in range(3):
        rate.take(1000)

    assert round(clock.now - 3700.0, 6) == 2.0


def test_who_is_stopped_does_not_wait() -> None:
    clock = Clock()
    rate = RateLimit(1.0, clock=clock, sleep=clock.sleep)
    rate.take(3600)

    rate.take(1, stopped=lambda: True)

    assert clock.now == 100.0


def test_without_a_limit_nobody_waits() -> None:
    clock = Clock()
    rate = RateLimit(None, clock=clock, sleep=clock.sleep)

    rate.take(1 << 40)

    assert clock.now == 100.0


def test_a_store_that_asks_to_slow_down_is_asked_nothing_new_meanwhile() -> None:
    connections = Connections(2)
    waited: list[bool] = []
    is_through = threading.Event()

    def check() -> None:
        waited.append(is_through.is_set())

    connections.hold_off(0.3)
    connections.wait_until_open(check)
    is_through.set()

    assert len(waited) > 1
    assert not any(waited)


class HadToWait(Exception):
    pass


def at_once() -> Callable[[], None]:
    """A check that is asked before the waiting, and must not be asked again during it."""
    asked = iter([None])

    def check() -> None:
        if next(asked, HadToWait) is HadToWait:
            raise HadToWait

    return check


def test_no_place_is_empty_while_somebody_waits() -> None:
    connections = Connections(2)
    with connections.for_a_fetch() as only, connections.for_a_fetch(), only.one(at_once()):
        with only.one(at_once()), pytest.raises(HadToWait), only.one(at_once()):
            pass
        with only.one(at_once()):
            pass


def test_a_place_goes_to_the_fetch_that_has_the_fewest() -> None:
    connections = Connections(2)
    came: list[str] = []
    with connections.for_a_fetch() as early, connections.for_a_fetch() as late, ExitStack() as held:
        held.enter_context(early.one(at_once()))
        with early.one(at_once()):
            threads = [
                _waiting(early, lambda: came.append("early")),
                _waiting(late, lambda: came.append("late")),
            ]
        for thread in threads:
            thread.join()

    assert came == ["late", "early"]


def _waiting(share: Share, then: Callable[[], None]) -> threading.Thread:
    """A thread that waits for a place, gives it back, and ends."""
    asked = iter(range(2))
    waits = threading.Event()

    def check() -> None:
        if next(asked, None) == 1:
            waits.set()

    def take() -> None:
        with share.one(check):
            then()

    thread = threading.Thread(target=take)
    thread.start()
    assert waits.wait(60)
    return thread
