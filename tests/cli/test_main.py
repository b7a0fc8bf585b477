"""The command line as a whole: help, mistakes, exit codes, completion."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.command import XGEN_MODEL, environment, xgen_model


def test_without_arguments_the_commands_are_listed_and_it_is_bad_usage() -> None:
    result = xgen_model()

    assert result.returncode == 64
    assert "Commands:\n  run " in result.stderr


def test_help_lists_every_command_in_one_line() -> None:
    result = xgen_model("--help")

    assert result.returncode == 0
    _, _, listed = result.stdout.partition("Commands:\n")
    assert "..." not in listed
    assert max(map(len, listed.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["statsu"], "Did you mean 'status'?"),
        (["status", "--wacht"], "--watch"),
        (["status", "--output", "xml"], "'xml' is not one of"),
        (["run"], "Missing option '--manifest'"),
        (["run", "--manifest", "m", "--listen", "9"], "'9' is not HOST:PORT"),
        (["run", "--manifest", "m", "--hub", "ftp://x"], "'ftp://x' is neither s3://BUCKET"),
        (["run", "--manifest", "m", "--hub", "s3://"], "'s3://' is neither s3://BUCKET"),
        (["hub", "list", "--hub", "ftp://x"], "'ftp://x' is neither s3://BUCKET"),
        (["run", "--manifest", "m", "--cache-budget", "abc"], "Invalid value for --cache-budget"),
    ],
)
def test_bad_usage_is_64_and_says_what_was_meant(arguments: list[str], said: str) -> None:
    result = xgen_model(*arguments)

    assert (result.returncode, result.stdout) == (64, "")
    assert said in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("command", [["schema"], ["--version"], ["--help"], ["doctor"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_disk_that_is_full_is_one_line_on_stderr(
    command: list[str], unbuffered: str, tmp_path: Path
) -> None:
    """Nothing that was to be printed is lost in silence, and it is no crash."""
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        result = subprocess.run(
            [XGEN_MODEL, *command],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            env=environment(XGEN_DATA_DIR=str(tmp_path), PYTHONUNBUFFERED=unbuffered),
            check=False,
        )

    said = "error: cannot write to stdout: No space left on device\n"
    assert (result.returncode, result.stderr) == (1, said)


def test_a_pipe_that_is_closed_is_silent() -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    try:
        result = subprocess.run(
            [XGEN_MODEL, "schema"],
            stdout=theirs,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            env=environment(),
            check=False,
        )
    finally:
        os.close(theirs)

    assert (result.returncode, result.stderr) == (1, "")


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("xgen-model sta", "status"),
        ("xgen-model status --wa", "--watch"),
        ("xgen-model validate --output gith", "github"),
    ],
)
def test_bash_completes(typed: str, offered: str) -> None:
    """The script is what `--show-completion` prints in that shell, run as bash runs it on TAB."""
    script = """
        eval "$(xgen-model --show-completion)"
        COMP_WORDS=($TYPED) COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        $(complete -p xgen-model | sed 's/.* -F \\([^ ]*\\) .*/\\1/') xgen-model
        echo "${COMPREPLY[@]}"
    """
    path = f"{Path(XGEN_MODEL).parent}:{os.environ['PATH']}"

    result = subprocess.run(
        ["bash", "--norc", "-c", script],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment(TYPED=typed, PATH=path),
        check=True,
    )

    assert result.stdout.split() == [offered]
