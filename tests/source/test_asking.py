"""When a source that is far away is asked again."""

from contextlib import aclosing

from reconciler.source.asking import Answer, Asking, Pace
from reconciler.source.snapshot import Snapshot

PACE = Pace(interval_seconds=60, first_retry_seconds=1, last_retry_seconds=30)


async def pauses(*answers: Answer) -> list[float]:
    """After each of these answers."""
    given = iter(answers)

    async def ask() -> Answer:
        return next(given)

    asking = Asking("there", ask, PACE, now=lambda: "now")
    found = []
    for _ in answers:
        await asking.read()
        found.append(asking.pause_seconds())
    return found


def answer(*, reached: bool = False, wait: float | None = None) -> Answer:
    snapshot = Snapshot(location="there", revision="")
    return Answer(snapshot=snapshot, reached=reached, wait_seconds=wait)


async def test_later_and_later_while_it_is_away() -> None:
    found = await pauses(answer(reached=True), *[answer()] * 7, answer(reached=True))
    for pause, about in zip(found, (60, 1, 2, 4, 8, 16, 30, 30, 60), strict=True):
        assert 0.9 * about <= pause <= 1.1 * about


async def test_no_sooner_than_the_other_side_wants_and_not_when_it_wants_never() -> None:
    found = await pauses(answer(wait=20), answer(wait=1), answer(wait=10_000))
    for pause, about in zip(found, (20, 2, 300), strict=True):
        assert 0.9 * about <= pause <= 1.1 * about


async def test_a_fault_of_ours_is_an_error_that_is_tried_again() -> None:
    faults: list[Exception | None] = [RuntimeError("unexpected"), None]

    async def ask() -> Answer:
        fault = faults.pop(0)
        if fault is not None:
            raise fault
        return answer(reached=True)

    soon = Pace(interval_seconds=60, first_retry_seconds=0.01)
    async with aclosing(Asking("there", ask, soon, now=lambda: "now").snapshots()) as snapshots:
        assert "a fault of ours" in str((await anext(snapshots)).error)
        assert (await anext(snapshots)).error is None
