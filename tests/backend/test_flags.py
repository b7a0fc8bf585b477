import pytest

from reconciler.backend.flags import Flag, Flags, Takes, parse_help
from tests.backend.build import HELP, HELP_FLAGS


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("--ctx-size", Flag(names=("--ctx-size",), takes=Takes.NUMBER)),
        ("--n-predict", Flag(names=("--predict", "--n-predict"), takes=Takes.NUMBER)),
        ("--metrics", Flag(names=("--metrics",), takes=Takes.NOTHING)),
        (
            "--flash-attn",
            Flag(
                names=("--flash-attn",),
                takes=Takes.ON_OFF,
                only=("on", "off", "auto", "true", "false", "enabled", "disabled", "1", "0", "-1"),
            ),
        ),
        ("--cpu-strict", Flag(names=("--cpu-strict",), takes=Takes.ZERO_ONE)),
        (
            "--control-vector-layer-range",
            Flag(names=("--control-vector-layer-range",), takes=Takes.TWO_VALUES),
        ),
        ("--no-host", Flag(names=("--no-host",), takes=Takes.NOTHING)),
        (
            "--no-kv-unified",
            Flag(names=("--kv-unified",), negations=("--no-kv-unified",), takes=Takes.NOTHING),
        ),
        (
            "--no-mmproj",
            Flag(
                names=("--mmproj-auto",),
                negations=("--no-mmproj", "--no-mmproj-auto"),
                takes=Takes.NOTHING,
            ),
        ),
        (
            "--draft-max",
            Flag(
                names=("--draft", "--draft-n", "--draft-max"),
                takes=Takes.NUMBER,
                removed="use --spec-draft-n-max or --spec-ngram-mod-n-max",
            ),
        ),
        (
            "--spec-ngram-min-hits",
            Flag(
                names=("--spec-ngram-min-hits",),
                takes=Takes.NUMBER,
                removed="use the respective --spec-ngram-*-min-hits",
            ),
        ),
    ],
)
def test_reads_a_flag_out_of_the_real_help_text(name: str, expected: Flag) -> None:
    assert HELP_FLAGS.find(name) == expected


def test_reads_every_flag_of_the_real_help_text() -> None:
    assert HELP_FLAGS.complete
    assert len(HELP_FLAGS.flags) == sum(
        line.startswith("-") and not line.startswith("---") for line in HELP.splitlines()
    )


@pytest.mark.parametrize("text", ["", "usage: something else\n\n  -x, --xyz  do it\n"])
def test_does_not_claim_to_know_a_build_whose_help_it_cannot_read(text: str) -> None:
    assert parse_help(text) == Flags()
    assert not parse_help(text).complete


def test_names_the_nearest_flag_and_never_one_that_was_removed() -> None:
    assert HELP_FLAGS.nearest("--ctx-sise") == "--ctx-size"
    assert HELP_FLAGS.nearest("--draft-mn") != "--draft-min"
    assert HELP_FLAGS.nearest("--qqqqqq") is None
