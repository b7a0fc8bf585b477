"""What a load may take is told by loads of the same files on the same backend, or not at all."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.plan.desired import ModelSpec
from reconciler.plan.durations import (
    UNTIMED,
    Durations,
    Expected,
    FetchTime,
    LoadTime,
    StopTime,
    expected_fetch,
    expected_load,
    expected_stop,
    expected_wait,
)
from reconciler.plan.ids import SpecHash

SPEC = ModelSpec(source="gguf/a")
HASH = SpecHash("1:a")


def load(seconds: float, **other: object) -> LoadTime:
    made = LoadTime(
        backend="llama-server-cpu", source="gguf/a", file=None, spec_hash=HASH, seconds=seconds
    )
    return replace(made, **other)  # type: ignore[arg-type]


def expected(*loads: LoadTime, spec: ModelSpec = SPEC, after_fetch: bool = False) -> Expected:
    return expected_load(
        Durations(loads=loads),
        backend="llama-server-cpu",
        spec=spec,
        spec_hash=HASH,
        after_fetch=after_fetch,
    )


def test_the_median_counts_so_that_one_slow_load_does_not() -> None:
    assert expected(load(4.0), load(5.0), load(600.0)) == Expected(
        seconds=5.0, why="the median of 3 loads here"
    )


def test_what_was_never_loaded_is_not_known() -> None:
    assert expected() == Expected(seconds=None, why="never loaded here on llama-server-cpu")


@pytest.mark.parametrize(
    "other", [{"backend": "vllm-cpu"}, {"source": "gguf/b"}, {"file": "large.gguf"}]
)
def test_other_files_or_another_engine_say_nothing(other: dict[str, str]) -> None:
    assert expected(load(4.0, **other)).seconds is None


def test_the_same_spec_counts_before_another_one_of_the_same_files() -> None:
    other = load(90.0, spec_hash=SpecHash("1:b"))
    assert expected(other).seconds == 90.0
    assert expected(other).why == "the last load here with another spec"
    assert expected(other, load(4.0)).seconds == 4.0


def test_another_model_of_the_same_files_counts_where_there_is_no_own_load() -> None:
    others = [Durations(loads=(load(7.0), load(9.0, backend="vllm-cpu")))]
    found = expected_load(
        UNTIMED, backend="llama-server-cpu", spec=SPEC, spec_hash=HASH, others=others
    )
    assert found == Expected(
        seconds=7.0, why="the last load here of another model of the same files"
    )
    own = Durations(loads=(load(4.0),))
    found = expected_load(own, backend="llama-server-cpu", spec=SPEC, spec_hash=HASH, others=others)
    assert found.seconds == 4.0


def test_files_that_have_just_come_are_in_memory_still() -> None:
    loads = (load(40.0), load(5.0, after_fetch=True))
    assert expected(*loads).seconds == 40.0
    assert expected(*loads, after_fetch=True).seconds == 5.0
    assert expected(load(40.0), after_fetch=True).seconds == 40.0


def test_any_backend_counts_where_it_is_not_known_yet() -> None:
    found = expected_load(Durations(loads=(load(4.0),)), backend=None, spec=SPEC, spec_hash=HASH)
    assert found.seconds == 4.0


def test_a_stop_is_its_drain_and_its_end() -> None:
    past = Durations(stops=(StopTime(drain_seconds=2.0, seconds=1.0),))
    assert expected_stop(past) == Expected(seconds=3.0, why="the last stop here")
    assert expected_stop(UNTIMED).seconds is None


def test_a_load_that_took_nobodys_place_says_nothing_of_waits() -> None:
    assert expected_wait(Durations(loads=(load(4.0), load(4.0, waited_seconds=2.0)))) == 2.0
    assert expected_wait(UNTIMED) == 0.0


def test_a_download_is_expected_at_the_rate_of_earlier_ones() -> None:
    past = Durations(
        fetches=(
            FetchTime(size_bytes=100_000_000, seconds=1.0),
            FetchTime(size_bytes=300_000_000, seconds=1.0),
            FetchTime(size_bytes=500, seconds=1.0),
        )
    )
    assert expected_fetch([UNTIMED, past], 1_000_000_000) == Expected(
        seconds=5.0, why="at 200 MB/s, the median of 2 downloads here"
    )
    assert expected_fetch([past], 0).seconds == 0.0
    assert expected_fetch([UNTIMED], 1).seconds is None


SECONDS = st.floats(min_value=0.0, max_value=1e5)
LOADS = st.builds(
    LoadTime,
    backend=st.sampled_from(["a", "b"]),
    source=st.sampled_from(["gguf/a", "gguf/b"]),
    file=st.sampled_from([None, "x.gguf"]),
    spec_hash=st.sampled_from([HASH, SpecHash("1:b")]),
    seconds=SECONDS,
    after_fetch=st.booleans(),
    waited_seconds=SECONDS,
)


@given(st.lists(LOADS, max_size=8), st.sampled_from([None, "a", "b"]), st.booleans(), st.booleans())
def test_what_is_expected_has_been_seen(
    loads: list[LoadTime], backend: str | None, named: bool, after_fetch: bool
) -> None:
    spec = ModelSpec(source="gguf/a", file="x.gguf" if named else None)
    found = expected_load(
        Durations(loads=tuple(loads)),
        backend=backend,
        spec=spec,
        spec_hash=HASH,
        after_fetch=after_fetch,
    )
    alike = [
        each.seconds
        for each in loads
        if (each.source, each.file) == ("gguf/a", spec.file) and backend in (None, each.backend)
    ]
    assert (found.seconds is None) == (not alike)
    assert found.seconds is None or min(alike) <= found.seconds <= max(alike)
