"""What counts as progress, and what as standstill (scenarios 4, 55 to 57)."""

from dataclasses import dataclass, field, replace

import hypothesis.strategies as st
import pytest
from hypothesis import given

from reconciler.observe.liveness import Pulse, Sight, after, first, standstill
from reconciler.observe.progress import Progress, Untold

STILL = Progress(prompt_tokens=7, generated_tokens=5, steps=3, running=1, waiting=2, kv_usage=0.43)
SILENT = Untold(reason="cannot read the page: nothing whole came within 60 s")


@dataclass
class Watched:
    """Looks every ten seconds, at a process that owes something and shows nothing."""

    sight: Sight = field(
        default_factory=lambda: Sight(at=100.0, owed=1, counts=STILL, cpu_seconds=50.0)
    )
    pulse: Pulse = field(init=False)

    def __post_init__(self) -> None:
        self.pulse = first(self.sight)

    def look(self, **changes: object) -> Pulse:
        at = self.sight.at + 10.0
        self.sight = replace(self.sight, at=at, **changes)  # type: ignore[arg-type]
        self.pulse = after(self.pulse, self.sight)
        return self.pulse


def test_time_in_which_nothing_moves_is_added_up() -> None:
    watched = Watched()
    for _ in range(3):
        watched.look()
    assert watched.pulse.stalled_seconds == 30.0
    assert watched.pulse.progress_at == 100.0


@pytest.mark.parametrize(
    "sign",
    [
        {"relayed_bytes": 1},
        {"counts": replace(STILL, prompt_tokens=8)},
        {"counts": replace(STILL, generated_tokens=6)},
        {"counts": replace(STILL, steps=4)},
        {"counts": replace(STILL, kv_usage=0.44)},
        {"counts": replace(STILL, generated_tokens=0)},
        {"counts": SILENT, "cpu_seconds": 50.3},
        {"cpu_seconds": 50.3},
    ],
    ids=["bytes", "prompt", "generated", "steps", "kv-cache", "began-anew", "unheard", "computes"],
)
def test_any_sign_is_progress(sign: dict[str, object]) -> None:
    watched = Watched()
    watched.look()
    assert watched.look(**sign).stalled_seconds == 0.0
    assert watched.pulse.progress_at == watched.sight.at


@pytest.mark.parametrize(
    "change",
    [
        {"counts": replace(STILL, running=9, waiting=90)},
        {"counts": None},
        {"counts": SILENT},
        {"counts": SILENT, "cpu_seconds": 50.1},
        {"counts": SILENT, "cpu_seconds": None},
        {"owed": 9},
    ],
    ids=["others-wait", "not-asked", "silent", "idle-cpu", "gpu", "more-owed"],
)
def test_what_is_no_sign_of_work_is_no_progress(change: dict[str, object]) -> None:
    watched = Watched()
    assert watched.look(**change).stalled_seconds == 10.0


def test_what_an_idle_engine_computes_is_no_progress() -> None:
    watched = Watched()
    watched.look(owed=0)
    assert watched.look(cpu_seconds=60.0).progress_at == 100.0


def test_what_moved_while_the_page_was_silent_is_progress_once_it_is_told() -> None:
    watched = Watched()
    watched.look(counts=SILENT)
    watched.look(counts=replace(STILL, steps=4))
    assert watched.pulse.stalled_seconds == 0.0


def test_time_without_anything_owed_does_not_count_and_takes_nothing_away() -> None:
    """Scenario 55, Fastllm-proxy#19: clients that gave up and asked again hid a hang for 85 min."""
    watched = Watched()
    for owed in (1, 0, 0, 1, 1, 0, 1, 1):
        watched.look(owed=owed)
    assert watched.pulse.stalled_seconds == 30.0


def test_the_first_counts_are_no_progress() -> None:
    watched = Watched(Sight(at=0.0, owed=1))
    assert watched.look(counts=STILL).stalled_seconds == 10.0


def test_a_standstill_is_told_with_its_figures() -> None:
    watched = Watched()
    watched.look()
    assert standstill(watched.pulse, in_flight=3) == (
        "no progress for 10 s with 3 requests in flight: tokens 5, prompt tokens 7, steps 3, "
        "KV cache 43%"
    )


def test_a_page_that_is_silent_is_told_with_the_counts_before_it() -> None:
    watched = Watched(Sight(at=0.0, owed=1, counts=Progress(generated_tokens=5)))
    assert standstill(watched.look(counts=SILENT), in_flight=0) == (
        "no progress for 10 s with no requests in flight: tokens 5; its counts do not come any "
        "more: cannot read the page: nothing whole came within 60 s"
    )


COUNTS = st.one_of(
    st.none(),
    st.just(SILENT),
    st.builds(Progress, generated_tokens=st.integers(0, 3), steps=st.integers(0, 3)),
)
SIGHTS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2), COUNTS, st.floats(0.5, 60.0)), max_size=30
)


@given(SIGHTS)
def test_stalled_time_is_never_more_than_the_time_since_the_last_progress(
    looks: list[tuple[int, int, Progress | Untold | None, float]],
) -> None:
    sight = Sight(at=0.0, owed=0)
    pulse = first(sight)
    for owed, more, counts, passed in looks:
        at, relayed = sight.at + passed, sight.relayed_bytes + more
        sight = Sight(at=at, owed=owed, relayed_bytes=relayed, counts=counts)
        pulse = after(pulse, sight)
        assert 0.0 <= pulse.stalled_seconds <= pulse.quiet_seconds + 1e-6
        assert not more or pulse.progress_at == sight.at
