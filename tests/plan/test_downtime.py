"""The gap in service that a model's actions make, and when what is started is ready."""

from hypothesis import given
from hypothesis import strategies as st

from reconciler.plan.actions import Action, FetchFiles, StartBackend, StopBackend
from reconciler.plan.downtime import Downtime, downtime
from reconciler.plan.durations import Expected
from reconciler.plan.ids import FilesDigest, Instance, ModelName, Nonce, SpecHash

M, OLD, OTHER = ModelName("m"), Nonce("old"), Nonce("other")
LOAD = Expected(seconds=40.0, why="the last load here")
STOP = Expected(seconds=3.0, why="the last stop here")
UNKNOWN = Expected(seconds=None, why="never loaded here")

FETCH = FetchFiles(model=M, spec_hash=SpecHash("1:b"), reason="new")
START = StartBackend(
    model=M,
    instance=Instance(spec_hash=SpecHash("1:b"), files_digest=FilesDigest("f")),
    gpus=(),
    reason="new",
)


def end(nonce: Nonce = OLD) -> StopBackend:
    return StopBackend(model=M, nonce=nonce, pid=1, drain=True, reason="changed", cause="changed")


def of(*actions: Action, serving: Nonce | None = OLD, load: Expected = LOAD) -> Downtime:
    return downtime(
        actions, serving=serving, load=load, stop=STOP, wait_seconds=2.0, download_seconds=100.0
    )


def test_one_that_makes_way_is_missed_until_its_successor_serves() -> None:
    found = of(FETCH, end(), START)
    assert (found.seconds, found.ready_seconds) == (45.0, 145.0)
    assert found.reason == (
        "it stops before the new process starts; the stop takes 3 s (the last stop here); its "
        "memory is free after 2 s more; the load takes 40 s (the last load here)"
    )


def test_a_download_that_needs_the_room_of_what_serves_is_missed_too() -> None:
    found = of(end(), FETCH, START)
    assert (found.seconds, found.ready_seconds) == (145.0, 145.0)
    assert found.reason.startswith("it stops to make room for the download; ")
    unknown = downtime(
        [end(), FETCH, START], serving=OLD, load=LOAD, stop=STOP, download_seconds=None
    )
    assert unknown.seconds is None


def test_a_surge_is_no_gap() -> None:
    found = of(FETCH, START, end())
    assert (found.seconds, found.ready_seconds) == (0.0, 140.0)


def test_what_serves_nothing_cannot_be_missed() -> None:
    found = of(FETCH, START, serving=None)
    assert (found.seconds, found.ready_seconds) == (0.0, 140.0)
    assert found.reason == "nothing serves it now; a load takes 40 s (the last load here)"


def test_one_that_loads_still_is_replaced_without_a_gap() -> None:
    assert of(end(OTHER), START, serving=None).seconds == 0.0


def test_one_that_was_to_take_its_place_goes_and_the_old_one_serves_on() -> None:
    assert of(end(OTHER)) == Downtime(seconds=0.0, reason="it serves on")


def test_without_actions_it_serves_on() -> None:
    assert of() == Downtime(seconds=0.0, reason="it serves on")


def test_a_stop_alone_is_for_good() -> None:
    found = of(end())
    assert (found.seconds, found.for_good, found.ready_seconds) == (None, True, None)


def test_what_was_never_loaded_has_a_gap_of_a_length_that_is_not_known() -> None:
    found = of(end(), START, load=UNKNOWN)
    assert (found.seconds, found.ready_seconds, found.for_good) == (None, None, False)
    assert found.reason.endswith("the load takes a time that is not known (never loaded here)")


def test_a_stop_that_was_never_timed_is_said_to_be_left_out() -> None:
    never = Expected(seconds=None, why="it was never stopped here")
    found = downtime([end(), START], serving=OLD, load=LOAD, stop=never)
    assert found.seconds == 40.0
    assert "the stop is not counted (it was never stopped here)" in found.reason


SECONDS = st.none() | st.floats(min_value=0.0, max_value=1e6)
EXPECTED = st.builds(Expected, seconds=SECONDS, why=st.just("w"))


@given(
    st.lists(st.sampled_from([FETCH, START, end(), end(OTHER)]), max_size=5),
    st.sampled_from([None, OLD]),
    EXPECTED,
    EXPECTED,
    st.floats(min_value=0.0, max_value=1e6),
    SECONDS,
)
def test_no_gap_is_negative_and_what_is_not_known_stays_so(
    actions: list[Action],
    serving: Nonce | None,
    load: Expected,
    stop: Expected,
    wait_seconds: float,
    download_seconds: float | None,
) -> None:
    found = downtime(
        actions,
        serving=serving,
        load=load,
        stop=stop,
        wait_seconds=wait_seconds,
        download_seconds=download_seconds,
    )
    assert found.seconds is None or found.seconds >= 0.0
    assert found.ready_seconds is None or found.ready_seconds >= (found.seconds or 0.0)
    if found.seconds:
        assert load.seconds is not None
        assert found.seconds >= load.seconds
    if serving is None:
        assert found.seconds == 0.0
    if None in (load.seconds, download_seconds):
        assert found.ready_seconds is None
    if found.for_good:
        assert found.seconds is None
        assert START not in actions
