"""What `hub` commands refuse, and what they say when they are ended early."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from reconciler.file_lock import held
from reconciler.hub.directory_writer import DirectoryWriter
from tests.cli.command import XGEN_MODEL, environment, started, xgen_model
from tests.cli.test_hub import PREFIX, model

HUB = "--hub"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory hub with a model."""
    folder = tmp_path / "hub"
    folder.mkdir()
    assert xgen_model("hub", "push", model(tmp_path), PREFIX, HUB, folder).returncode == 0
    return folder


@pytest.mark.parametrize("words", [["list"], ["verify", PREFIX], ["rm", PREFIX, "--yes"], ["gc"]])
@pytest.mark.parametrize("value", ["", " "])
def test_a_hub_without_a_name_is_bad_usage(words: list[str], value: str) -> None:
    """It is not the folder that one happens to be in."""
    result = xgen_model("hub", *words, HUB, value)

    assert result.returncode == 64
    assert "Invalid value for --hub: it is empty" in result.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--licence", "a\nb"], "Invalid value for --licence: 'a\\nb' is not one line"),
        (["--licence", " "], "Invalid value for --licence: ' ' is not one line"),
        (["--upstream", "foo"], "Invalid value for --upstream: 'foo' is not ORG/NAME"),
        (["--upstream", "a/b/c"], "Invalid value for --upstream: 'a/b/c' is not ORG/NAME"),
        (["--upstream", "a/b", "--revision", "x\ty"], "Invalid value for --revision: 'x\\ty' is"),
    ],
)
def test_words_of_a_catalog_that_can_be_none_are_bad_usage(
    place: Path, tmp_path: Path, words: list[str], said: str
) -> None:
    result = xgen_model("hub", "push", model(tmp_path), PREFIX, HUB, place, *words)

    assert result.returncode == 64
    assert said in result.stderr


def test_a_hub_is_not_pushed_into_itself(place: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(place)

    result = xgen_model("hub", "push", link, "gguf/aa", HUB, place)

    assert result.returncode == 1
    assert "it is the hub itself" in result.stderr
    assert [each.name for each in place.iterdir()] == [PREFIX.partition("/")[0]]


def test_a_dry_run_says_that_only_the_catalog_would_change(place: Path, tmp_path: Path) -> None:
    words = ("push", model(tmp_path), PREFIX, HUB, place, "--licence", "mit", "--dry-run")

    result = xgen_model("hub", *words)

    assert result.stdout.endswith("would upload 0 of 2 files, 0 bytes, and write a new catalog\n")


def test_a_folder_without_a_file_is_no_push_under_way(place: Path) -> None:
    (place / "gguf/org_nothing").mkdir(parents=True)

    result = xgen_model("hub", "list", HUB, place)

    assert "gguf/org_nothing: it holds no file" in result.stderr
    assert "push" not in result.stderr


def test_verify_of_what_has_no_catalog_is_neither_ok_nor_not(place: Path) -> None:
    DirectoryWriter(place).save("gguf/org_plain", "m.gguf", b"by another tool")

    result = xgen_model("hub", "verify", "gguf/org_plain", HUB, place, "--output", "json")

    told = json.loads(result.stdout)
    assert (result.returncode, told["verified"], told["ok"]) == (0, False, None)


def test_a_host_that_is_not_known_has_a_next_step() -> None:
    env = {"MINIO_ENDPOINT": "http://nowhere.invalid:9000"}

    result = xgen_model("hub", "list", HUB, "s3://models", env=env)

    assert result.returncode == 1
    assert "its name cannot be resolved; check MINIO_ENDPOINT" in result.stderr


@pytest.mark.parametrize("words", [["hub", "list"], ["hub", "push"], ["cache", "list"]])
def test_a_stdout_that_is_closed_is_an_error_in_one_line(
    place: Path, tmp_path: Path, words: list[str]
) -> None:
    more = {
        "list": [HUB, place],
        "push": [model(tmp_path), PREFIX, HUB, place],
        "cache": ["--models-dir", place],
    }
    given = more[words[0]] if words[0] in more else more[words[1]]

    result = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", XGEN_MODEL, *words, *map(str, given)],
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        env=environment(),
        check=False,
    )

    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "error: cannot write to stdout: it is closed\n" in result.stderr


def test_ctrl_c_before_a_command_has_begun_says_so(place: Path, tmp_path: Path) -> None:
    """A library that is slow to import, as on a cold disk; the signal comes in the midst of it."""
    library = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
    (tmp_path / "minio.py").write_text(library)

    result = xgen_model("hub", "list", HUB, place, env={"PYTHONPATH": str(tmp_path)})

    assert (result.returncode, result.stdout) == (130, "")
    assert result.stderr == "interrupted: nothing was begun\n"


@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (signal.SIGTERM, -signal.SIGTERM, "ended by SIGTERM: what is whole is kept; the same"),
        (signal.SIGINT, 130, "interrupted: what is whole is kept; the same"),
    ],
)
def test_a_pull_that_is_ended_says_what_holds(
    place: Path, tmp_path: Path, number: signal.Signals, code: int, said: str
) -> None:
    target = tmp_path / "pulled"
    (target / ".xgen").mkdir(parents=True)

    with (
        held(target / ".xgen/lock"),
        started("hub", "pull", PREFIX, target, HUB, place) as command,
    ):
        command.wait_for("waiting for its end")
        ended = command.end(number)

    assert (ended, "Traceback" in command.text) == (code, False)
    assert said in command.text
