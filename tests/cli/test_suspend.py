"""`xgen-model suspend` and `resume`: until when, by whom, and what an agent answers."""

import json
import re
import socket
from datetime import UTC, datetime, timedelta
from http import HTTPStatus

import pytest
import typer

from reconciler.cli.suspend import ends_after, ends_at, who
from tests.cli.command import xgen_model
from tests.cli.test_client import answering, problem

NOW = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
SAID = json.dumps({"api": 1, "node": "node-a", "said": "a is suspended by kim"}).encode()


@pytest.mark.parametrize(
    ("span", "seconds"),
    [("90", 90), ("90s", 90), ("30m", 1800), ("1.5h", 5400), ("2h", 7200), ("3d", 259200)],
)
def test_a_span_is_from_now_on(span: str, seconds: int) -> None:
    assert ends_after(span, NOW) == NOW + timedelta(seconds=seconds)


@pytest.mark.parametrize("span", ["", "h", "-2h", "2 h", "1w", "9" * 400 + "d"])
def test_what_is_no_span_is_told(span: str) -> None:
    with pytest.raises(typer.BadParameter, match="must be a duration such as"):
        ends_after(span, NOW)


@pytest.mark.parametrize(
    ("span", "said"), [("0m", "must be more than 0"), ("366d", "must be at most a year (365d)")]
)
def test_a_span_that_is_too_short_or_too_long_is_told_with_the_limit(span: str, said: str) -> None:
    with pytest.raises(typer.BadParameter, match=re.escape(f"{said}, not '{span}'")):
        ends_after(span, NOW)


def test_a_time_of_the_day_is_the_next_one() -> None:
    local = NOW.astimezone()
    for minutes in (-61, -1, 1, 61):
        clock = (local + timedelta(minutes=minutes)).strftime("%H:%M")
        end = ends_at(clock, NOW)
        assert NOW < end <= NOW + timedelta(days=1, hours=1)
        assert end.astimezone().strftime("%H:%M") == clock


def test_a_whole_time_is_taken_with_its_zone() -> None:
    assert ends_at("2026-12-01T14:00:00+01:00", NOW) == NOW + timedelta(hours=1)
    assert ends_at("2026-12-02", NOW) > NOW


@pytest.mark.parametrize("text", ["tomorrow", "25:00", "2026-13-01", "2020-01-01T00:00Z", ""])
def test_what_is_no_time_to_come_is_told(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"must be a time|is over already"):
        ends_at(text, NOW)


def test_who_says_so_is_the_user_of_this_host() -> None:
    assert who().endswith(f"@{socket.gethostname()}")


@pytest.mark.parametrize("command", [["suspend", "a", "--for", "2h"], ["resume", "a"]])
def test_the_agents_answer_is_said(command: list[str]) -> None:
    with answering(HTTPStatus.OK, SAID, X_Served_By="node-a") as url:
        text = xgen_model(*command, "--server", url)
        data = xgen_model(*command, "--server", url, "--output", "json")
    assert (text.returncode, text.stdout) == (0, "node-a: a is suspended by kim\n")
    assert json.loads(data.stdout)["said"] == "a is suspended by kim"


def test_what_the_manifest_says_is_an_error() -> None:
    body = problem("cannot_be_done", "cannot resume a: the manifest suspends it (m.yaml:4:3)")
    with answering(HTTPStatus.CONFLICT, body, X_Served_By="node-a") as url:
        result = xgen_model("resume", "a", "--server", url)
    assert result.returncode == 1
    assert "the manifest suspends it (m.yaml:4:3)" in result.stderr


def test_two_ends_are_one_too_many() -> None:
    result = xgen_model("suspend", "--for", "2h", "--until", "18:00")
    assert (result.returncode, "give either" in result.stderr) == (64, True)


def test_a_revision_that_is_too_short_is_told_before_an_agent_is_asked() -> None:
    done = xgen_model("reconcile", "--confirm", "abc", "--server", "http://127.0.0.1:9")
    assert done.returncode == 64
    assert "its first seven" in done.stderr
