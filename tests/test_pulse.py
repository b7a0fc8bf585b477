"""The age of what the loop says, by a clock that is moved."""

from reconciler.pulse import SILENT_SECONDS, Pulse


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self, moment: float) -> str:
        return f"t{moment:g}"


def pulse() -> tuple[Pulse, Clock]:
    clock = Clock()
    return Pulse(clock.monotonic, clock.wall), clock


def test_the_status_is_as_of_the_end_of_the_last_good_tick() -> None:
    beats, clock = pulse()
    beats.begun()
    clock.now = 2.0
    beats.ended(failed=False)
    clock.now = 5.0
    beat = beats.beat()
    assert (beat.now, beat.as_of, beat.age_seconds, beat.tick_seconds) == ("t5", "t2", 3.0, None)


def test_a_failed_tick_renews_nothing() -> None:
    beats, clock = pulse()
    beats.ended(failed=False)
    clock.now = SILENT_SECONDS
    beats.begun()
    beats.ended(failed=True)
    beat = beats.beat()
    assert (beat.as_of, beat.age_seconds, beat.failed) == ("t0", SILENT_SECONDS, True)
    assert beat.silent_since is None  # it ticks, and `TickFailed` says how


def test_a_tick_that_does_not_end_makes_the_loop_silent() -> None:
    beats, clock = pulse()
    beats.begun()
    beats.ended(failed=False)
    clock.now = 10.0
    beats.begun()
    clock.now = SILENT_SECONDS - 1
    assert beats.beat().silent_since is None
    clock.now = SILENT_SECONDS + 5
    beat = beats.beat()
    assert (beat.silent_since, beat.tick_seconds) == ("t60", 55.0)


def test_before_the_first_tick_its_age_is_that_of_the_agent() -> None:
    beats, clock = pulse()
    clock.now = SILENT_SECONDS
    beat = beats.beat()
    assert (beat.as_of, beat.age_seconds, beat.silent_since) == (None, SILENT_SECONDS, "t60")
