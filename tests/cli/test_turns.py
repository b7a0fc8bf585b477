"""What keeps the event loop from its next step: other threads, and the collector."""

import gc
import sys
from collections.abc import Iterator

import pytest

from reconciler.cli.garbage import collect_what_comes
from reconciler.cli.turns import TURN_SECONDS, take_short_turns


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    interval, thresholds = sys.getswitchinterval(), gc.get_threshold()
    yield
    sys.setswitchinterval(interval)
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def test_no_thread_keeps_the_interpreter_for_long() -> None:
    take_short_turns()
    assert sys.getswitchinterval() == pytest.approx(TURN_SECONDS)


def test_a_collection_while_a_manifest_is_read_is_of_few_objects() -> None:
    looked_at: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] < 2:
            generations = range(info["generation"] + 1)
            looked_at.append(sum(len(gc.get_objects(each)) for each in generations))

    collect_what_comes()
    gc.callbacks.append(note)
    try:
        kept: list[list[int]] = [[] for _ in range(200_000)]
    finally:
        gc.callbacks.remove(note)
    assert len(kept) / 10_000 < len(looked_at)
    assert max(looked_at) < 30_000
