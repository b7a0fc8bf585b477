import subprocess
import sys

import pytest

from reconciler.backend.usage import refused_arguments

PARSES = """
import argparse
parser = argparse.ArgumentParser(prog="serve")
parser.add_argument("--seqs", type=int)
parser.add_argument("--dtype", choices=["half"])
parser.add_argument("--dtypes")
parser.parse_args()
"""


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("--seqs=4.5", "argument --seqs: invalid int value: '4.5'"),
        ("--dtype=x", "argument --dtype: invalid choice: 'x' (choose from "),
        ("--seq", "argument --seqs: expected one argument"),
        ("--other", "unrecognized arguments: --other"),
        ("--dty=x", "ambiguous option: --dty=x could match --dtype, --dtypes"),
    ],
)
def test_what_argparse_refuses_is_told_in_its_words(word: str, said: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PARSES, word], capture_output=True, text=True, check=False
    )
    found = refused_arguments(ended.returncode, ended.stderr.splitlines())
    assert found is not None
    assert found.startswith(said)


@pytest.mark.parametrize(
    ("code", "lines"),
    [
        (1, ("serve: error: argument --seqs: invalid int value: 'x'",)),
        (2, ("serve: error: argument --seqs: invalid int value: 'x'", "Killed")),
        (2, ("python: can't open file 'serve'",)),
        (2, ()),
        (None, ()),
    ],
)
def test_other_ends_are_none(code: int | None, lines: tuple[str, ...]) -> None:
    assert refused_arguments(code, lines) is None
