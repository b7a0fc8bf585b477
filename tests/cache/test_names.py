"""Whatever somebody pushed under whatever name: it stays inside, or it is refused."""

import os
from pathlib import PurePosixPath

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reconciler.cache.names import check_paths
from reconciler.errors import Transient

PIECES = st.sampled_from(["..", ".", "", "a", "A", "ä", "ß", "SS", "\\", "\0", "\n", "x.gguf"])
NAMES = st.one_of(st.text(max_size=40), st.lists(PIECES, max_size=5).map("/".join))


@given(st.lists(NAMES, max_size=6))
@example(["a/../../b"])
@example(["\ud800"])
def test_what_is_accepted_stays_in_its_folder_and_is_distinct(names: list[str]) -> None:
    try:
        check_paths(names, "gguf/org_name")
    except Transient:
        return

    targets = [os.path.normpath(os.path.join("/cache/folder", name)) for name in names]
    assert all(target.startswith("/cache/folder/") for target in targets)
    assert not any(character in "\\\0\n\x7f" for name in names for character in name)
    assert len({target.casefold() for target in targets}) == len(names)
    folders = {str(parent) for name in names for parent in PurePosixPath(name).parents}
    assert folders.isdisjoint(names)


@pytest.mark.parametrize(
    ("names", "cause"),
    [
        (["../x"], "leave its folder"),
        (["a/../../x"], "leave its folder"),
        (["/etc/passwd"], "absolute"),
        (["a//b"], "empty component"),
        (["a/"], "empty component"),
        ([""], "empty component"),
        (["a\\..\\b"], "backslash"),
        (["a\0b"], "control character"),
        (["a\x1b[2Jb"], "control character"),
        (["x" * 256], "too long"),
        (["ä" * 128], "too long"),
        (["/".join(["x" * 200] * 6)], "too long"),
        (["Model.gguf", "model.gguf"], "case or"),
        (["a", "a/b"], "name of its folder"),
        (["x", "x"], "Unicode form alone"),
        (["e\u0301", "\u00e9"], "Unicode form alone"),
        (["a\udcffb"], "it is not UTF-8"),
    ],
)
def test_refuses_and_shows_the_name(names: list[str], cause: str) -> None:
    with pytest.raises(Transient, match=cause) as refused:
        check_paths(names, "gguf/org_name")

    assert any(repr(name) in str(refused.value) for name in names)
    assert "gguf/org_name" in str(refused.value)


def test_accepts_what_models_are_made_of() -> None:
    check_paths(
        [
            "config.json",
            "model-00001-of-00002.safetensors",
            "1_Pooling/config.json",
            "größe +1.txt",
        ],
        "huggingface/org_name",
    )
