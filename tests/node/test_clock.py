"""Moments as people read them."""

from reconciler.node.clock import SystemClock


def test_a_moment_reads_the_same_each_time() -> None:
    """Else each tick would publish a status that differs by a millisecond."""
    clock = SystemClock()
    moment = clock.monotonic()
    assert len({clock.wall(moment) for _ in range(2000)}) == 1
