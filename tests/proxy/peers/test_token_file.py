"""The secret of a cluster, in a file that may change."""

import os
from pathlib import Path

import pytest

from reconciler.errors import Rejected
from reconciler.proxy.peers.token_file import TokenFile


class Watch:
    """Monotonic seconds that pass when told."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_changed_file_is_taken_up_within_a_second(tmp_path: Path) -> None:
    file, watch = tmp_path / "token", Watch()
    file.write_text("first\n")
    token = TokenFile(file, clock=watch)
    assert token.current() == "first"
    swap(file, "second")
    watch.now += 0.5
    assert token.current() == "first"
    watch.now += 0.5
    assert token.current() == "second"


@pytest.mark.parametrize("content", [b"", b" \n", b"two words", b"\xff\xfe", b"a\x00b"])
def test_what_is_no_token_leaves_the_one_before_in_force(tmp_path: Path, content: bytes) -> None:
    file, watch = tmp_path / "token", Watch()
    file.write_text("first")
    token = TokenFile(file, clock=watch)
    file.write_bytes(content)
    watch.now += 1
    assert token.current() == "first"
    assert str(file) in str(token.problem())
    file.write_text("second")
    watch.now += 1
    assert (token.current(), token.problem()) == ("second", None)


@pytest.mark.parametrize(
    ("content", "said"),
    [("two words", "more than one word"), ("schlüssel", "other than printable ASCII")],
)
def test_says_why_a_file_holds_no_token(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "token"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(Rejected, match=said):
        TokenFile(file, clock=Watch())


def test_a_file_that_comes_back_as_it_was_is_fine_again(tmp_path: Path) -> None:
    file, away, watch = tmp_path / "token", tmp_path / "away", Watch()
    file.write_text("first")
    token = TokenFile(file, clock=watch)
    file.rename(away)
    watch.now += 1
    assert token.current() == "first"
    assert "No such file" in str(token.problem())
    away.rename(file)
    watch.now += 1
    assert (token.current(), token.problem()) == ("first", None)


@pytest.mark.parametrize("content", [None, b"", b"two words"])
def test_an_agent_does_not_start_without_the_token_that_it_is_to_have(
    tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(Rejected, match="cannot use the cluster token in"):
        TokenFile(file, clock=Watch())


def test_no_problem_shows_the_secret(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("open sesame")
    with pytest.raises(Rejected) as caught:
        TokenFile(file, clock=Watch())
    assert "sesame" not in str(caught.value)


def swap(file: Path, content: str) -> None:
    """As a Secret's mount does it."""
    beside = file.with_suffix(".new")
    beside.write_text(content)
    os.replace(beside, file)
