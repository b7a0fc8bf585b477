"""Rule R2, case by case."""

from collections.abc import Mapping

import pytest

from reconciler.manifest.resolve import FileInput, Resolution, resolve
from tests.manifest.texts import FOREIGN, TRUNCATED, listing, manifest, model


def names(resolution: Resolution) -> list[str]:
    assert resolution.manifest is not None
    return [entry.model.name for entry in resolution.manifest.models]


def applied(**files: bytes) -> Mapping[str, bytes]:
    """What is in force once these files were taken whole."""
    resolution = resolve(listing(**files), {})
    assert resolution.whole
    return resolution.in_force


def messages(resolution: Resolution) -> str:
    return "\n".join(str(problem) for problem in resolution.problems)


def test_takes_a_good_listing_whole() -> None:
    resolution = resolve(listing(a=manifest("x"), b=manifest("y"), k=FOREIGN), {})

    assert names(resolution) == ["x", "y"]
    assert resolution.whole
    assert resolution.kept == ()
    assert resolution.in_force == {"a.yaml": manifest("x"), "b.yaml": manifest("y")}
    assert [str(skip.place) for skip in resolution.skipped] == ["k.yaml:1:1"]


def test_a_listing_that_cannot_be_had_changes_nothing() -> None:
    """argo-cd#2573: the source is down; that is not 'nothing desired'."""
    resolution = resolve(None, applied(a=manifest("x")))

    assert names(resolution) == ["x"]
    assert resolution.kept == ("a.yaml",)
    assert not resolution.whole


@pytest.mark.parametrize(
    "files",
    [{}, {"a": b""}, {"a": b"# all gone\n"}, {"k": FOREIGN}, {"a": None}, {"a": TRUNCATED}],
    ids=["no file", "empty", "comments", "foreign", "unreadable", "truncated"],
)
def test_a_listing_without_a_manifest_changes_nothing(files: dict[str, bytes | None]) -> None:
    """argo-cd#3996, #10987: an empty manifest wipes all."""
    before = applied(a=manifest("x"), b=manifest("y"))

    resolution = resolve(listing(**files), before)

    assert names(resolution) == ["x", "y"]
    assert resolution.in_force == before
    assert not resolution.whole
    assert "nothing changes" in messages(resolution)


@pytest.mark.parametrize(
    "bad",
    [None, b"", b"# nothing\n", TRUNCATED, FOREIGN, manifest(model("x", typo=1))],
    ids=["unreadable", "empty", "comments", "truncated", "no manifest any more", "invalid"],
)
def test_a_bad_file_counts_as_it_was(bad: bytes | None) -> None:
    before = applied(a=manifest("x"), b=manifest("y"))

    resolution = resolve(listing(a=bad, b=manifest("y", "z")), before)

    assert names(resolution) == ["x", "y", "z"]
    assert resolution.kept == ("a.yaml",)
    assert not resolution.whole
    assert resolution.in_force["a.yaml"] == manifest("x")
    assert "a.yaml:" in messages(resolution)


def test_a_file_that_is_gone_takes_its_models_along() -> None:
    resolution = resolve(listing(b=manifest("y")), applied(a=manifest("x"), b=manifest("y")))

    assert names(resolution) == ["y"]
    assert resolution.whole
    assert resolution.in_force == {"b.yaml": manifest("y")}


def test_a_file_that_is_gone_takes_its_models_along_beside_a_broken_one() -> None:
    before = applied(a=manifest("x"), b=manifest("y"), c=manifest("z"))

    resolution = resolve(listing(b=TRUNCATED, c=manifest("z")), before)

    assert names(resolution) == ["y", "z"]


def test_a_renamed_file_keeps_its_models() -> None:
    resolution = resolve(listing(b=manifest("x")), applied(a=manifest("x")))

    assert names(resolution) == ["x"]
    assert resolution.whole
    assert set(resolution.in_force) == {"b.yaml"}


@pytest.mark.parametrize(
    "renamed",
    [manifest(model("x", typo=1)), TRUNCATED, None, manifest("x", "z")],
    ids=["invalid", "truncated", "unreadable", "clashing"],
)
def test_a_rename_that_fails_stops_nothing(renamed: bytes | None) -> None:
    before = applied(a=manifest("x"), c=manifest("z"))

    resolution = resolve(listing(b=renamed, c=manifest("z")), before)

    assert names(resolution) == ["x", "z"]
    assert set(resolution.kept) == {"a.yaml", "b.yaml"}
    assert "a.yaml:1:1: " in messages(resolution)
    assert "counts as it was last applied" in messages(resolution)


def test_a_model_moves_only_when_both_files_can_be_taken() -> None:
    before = applied(a=manifest("w", "x"), b=manifest("y"))

    resolution = resolve(listing(a=manifest("w"), b=manifest("y", model("x", typo=1))), before)

    assert names(resolution) == ["w", "x", "y"]
    assert "b.yaml names its model 'x'" in messages(resolution)


def test_a_model_moves_between_two_good_files() -> None:
    before = applied(a=manifest("w", "x"), b=manifest("y"))

    resolution = resolve(listing(a=manifest("w"), b=manifest("x", "y")), before)

    assert names(resolution) == ["w", "x", "y"]
    assert resolution.whole


def test_a_new_file_that_clashes_is_left_out() -> None:
    resolution = resolve(
        listing(a=manifest("x"), b=manifest("x", "y"), c=manifest("z")), applied(a=manifest("x"))
    )

    assert names(resolution) == ["x", "z"]
    assert resolution.kept == ("b.yaml",)
    (problem,) = resolution.problems
    assert str(problem).startswith("b.yaml:10:")
    assert "'x' is already the name of a model, at a.yaml:10:" in str(problem)


def test_a_changed_file_that_clashes_counts_as_it_was() -> None:
    before = applied(a=manifest("x"), b=manifest("y"))

    resolution = resolve(listing(a=manifest("x"), b=manifest("x", "y")), before)

    assert names(resolution) == ["x", "y"]
    assert resolution.kept == ("b.yaml",)


def test_two_changed_files_that_clash_both_count_as_they_were() -> None:
    before = applied(a=manifest("x"), b=manifest("y"))

    resolution = resolve(listing(a=manifest("x", "n"), b=manifest("y", "n")), before)

    assert names(resolution) == ["x", "y"]
    assert resolution.kept == ("a.yaml", "b.yaml")


def test_two_new_files_that_clash_are_both_left_out() -> None:
    resolution = resolve(listing(a=manifest("x"), b=manifest("x"), c=manifest("z")), {})

    assert names(resolution) == ["z"]
    assert resolution.kept == ("a.yaml", "b.yaml")


def test_a_clash_with_what_was_kept_spreads() -> None:
    """a is broken and keeps x; b took x over, so it keeps y; c took y over, so it keeps z."""
    before = applied(a=manifest("x"), b=manifest("y"), c=manifest("z"))

    resolution = resolve(listing(a=TRUNCATED, b=manifest("x"), c=manifest("y")), before)

    assert names(resolution) == ["x", "y", "z"]
    assert resolution.in_force == before
    assert "(a.yaml as last applied)" in messages(resolution)


def test_an_alias_may_not_be_a_name_of_another_file() -> None:
    before = applied(a=manifest("x"))

    resolution = resolve(listing(a=manifest("x"), b=manifest(model("y", aliases=["x"]))), before)

    assert names(resolution) == ["x"]


def test_the_next_good_version_applies() -> None:
    """flux2#1577: stuck on a failed revision though a fix was pushed."""
    before = applied(a=manifest("x"))
    failed = resolve(listing(a=TRUNCATED), before)

    resolution = resolve(listing(a=manifest("x", "y")), failed.in_force)

    assert names(resolution) == ["x", "y"]
    assert resolution.whole


def test_no_models_at_all_change_nothing_unless_they_are_meant() -> None:
    """argo-cd#10987."""
    before = applied(a=manifest("x"))

    resolution = resolve(listing(a=manifest()), before)

    assert names(resolution) == ["x"]
    assert resolution.in_force == before
    assert "allow_empty" in messages(resolution)


def test_no_models_at_all_with_allow_empty() -> None:
    resolution = resolve(listing(a=manifest(allow_empty=True)), applied(a=manifest("x")))

    assert names(resolution) == []
    assert resolution.whole


def test_one_document_that_allows_empty_counts_for_all() -> None:
    before = applied(a=manifest("x"), b=manifest(allow_empty=True))

    resolution = resolve(listing(b=manifest(allow_empty=True)), before)

    assert names(resolution) == []


def test_what_allowed_empty_goes_with_its_document() -> None:
    before = applied(a=manifest("x"), b=manifest(allow_empty=True))

    resolution = resolve(listing(a=manifest()), before)

    assert names(resolution) == ["x"]
    assert resolution.in_force == before


@pytest.mark.parametrize("allowed", [True, False])
def test_the_last_file_that_goes_leaves_all_as_it_was(allowed: bool) -> None:
    """An emptied directory, or path in git: nobody is left who could say that it is meant."""
    before = applied(a=manifest("x", allow_empty=allowed))

    resolution = resolve([], before)

    assert names(resolution) == ["x"]
    assert not resolution.whole


def test_an_empty_list_in_one_of_two_files_stops_its_models() -> None:
    before = applied(a=manifest("x"), b=manifest("y"))

    resolution = resolve(listing(a=manifest(), b=manifest("y")), before)

    assert names(resolution) == ["y"]
    assert resolution.whole


@pytest.mark.parametrize("files", [None, [], listing(a=TRUNCATED), listing(a=manifest())])
def test_with_nothing_applied_and_nothing_good_there_is_no_manifest(
    files: list[FileInput] | None,
) -> None:
    resolution = resolve(files, {})

    assert resolution.manifest is None
    assert resolution.in_force == {}


def test_a_warning_keeps_nothing_back() -> None:
    resolution = resolve(listing(a=manifest(model("x", extra_args={"no_such_flag": 1}))), {})

    assert resolution.whole
    assert "no_such_flag" in messages(resolution)


def test_what_another_release_applied_and_this_one_refuses_is_kept_and_not_used() -> None:
    before = {"a.yaml": manifest(model("x", from_the_future=1)), "b.yaml": manifest("y")}

    resolution = resolve(listing(a=TRUNCATED, b=manifest("y")), before)

    assert names(resolution) == ["y"]
    assert resolution.in_force == before
    assert "not valid either" in messages(resolution)


def test_an_applied_set_that_clashes_with_itself_still_gives_a_manifest() -> None:
    before = {"a.yaml": manifest("x"), "b.yaml": manifest("x", "y"), "c.yaml": manifest("z")}

    resolution = resolve(None, before)

    assert names(resolution) == ["x", "z"]
    assert resolution.in_force == before


def test_a_listing_that_mends_a_clashing_applied_set_is_taken() -> None:
    before = {"a.yaml": manifest("x"), "b.yaml": manifest("x", "y")}

    resolution = resolve(listing(a=manifest("x"), b=manifest("y")), before)

    assert names(resolution) == ["x", "y"]
    assert resolution.whole


def test_only_what_changed_is_parsed_again() -> None:
    first = resolve(listing(a=manifest("x"), b=manifest("y")), {})

    second = resolve(listing(a=manifest("x"), b=manifest("z")), first.in_force, parses=first.parses)

    key = ("a.yaml", manifest("x"))
    assert second.parses[key] is first.parses[key]
    assert set(second.parses) == {key, ("b.yaml", manifest("y")), ("b.yaml", manifest("z"))}
