"""What is told of a long transfer where no terminal is."""

import pytest

from reconciler.cli.hub_progress import Told
from tests.waiting import wait_until


def test_lines_come_also_while_nothing_does(capfd: pytest.CaptureFixture[str]) -> None:
    seen = ""

    def has_come(text: str) -> bool:
        nonlocal seen
        seen += capfd.readouterr().err
        return text in seen

    with Told(line_seconds=0.02) as told:
        told.waiting("asking s3://models")
        wait_until(lambda: has_come("asking s3://models: no answer for 0 s\n"), what="a line")
        told.begin("fetching", 400 << 20, 100 << 20)
        wait_until(lambda: has_come("fetching: 100.0 of 400.0 MiB (25 %)\n"), what="a line")
        told.advance(1)
        told.begin("tidying", 0)
    has_come("")

    assert "left" not in seen  # of a first byte, no time is reckoned
    assert "tidying" not in seen


def test_nothing_is_printed_for_what_takes_no_time(capfd: pytest.CaptureFixture[str]) -> None:
    with Told() as told:
        told.begin("fetching", 4)
        told.advance(4)
    assert capfd.readouterr() == ("", "")
