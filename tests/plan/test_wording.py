"""How reasons put times, counts and lists."""

import pytest

from reconciler.plan import wording


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1 s"), (9, "9 s"), (119, "119 s"), (120, "2 min"), (300, "5 min"), (7200, "2 h")],
)
def test_span_is_rounded_for_reading(seconds: float, text: str) -> None:
    assert wording.span(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.5, "0.5s"), (90, "90s"), (60, "1m"), (1800, "30m"), (3600, "1h")]
)
def test_timeout_is_put_as_in_a_manifest(seconds: float, text: str) -> None:
    assert wording.as_written(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"), [(1, "1st"), (2, "2nd"), (3, "3rd"), (4, "4th"), (11, "11th"), (22, "22nd")]
)
def test_ordinal(number: int, text: str) -> None:
    assert wording.ordinal(number) == text


def test_one_pid_and_several() -> None:
    assert (wording.pids([12]), wording.pids([12, 13])) == ("pid 12", "pids 12, 13")
