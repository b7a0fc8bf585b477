"""Rule R2 under any sequence of listings: nothing is lost by mistake, and it settles."""

from collections.abc import Mapping
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.manifest.claims import clashes
from reconciler.manifest.parse import ParsedFile, parse_file
from reconciler.manifest.resolve import FileInput, Resolution, resolve
from tests.manifest.texts import FOREIGN, TRUNCATED, manifest, model

_MODELS = st.lists(st.sampled_from("uvwxyz"), unique=True, max_size=3)
_CONTENTS = st.one_of(
    _MODELS.map(lambda names: manifest(*names)),
    _MODELS.map(lambda names: manifest(*names)),
    _MODELS.map(lambda names: manifest(*names, allow_empty=True)),
    _MODELS.map(lambda names: manifest(*names, model("typo", typo=1))),
    st.sampled_from([None, b"", b"# x\n", TRUNCATED, FOREIGN]),
)
_FILES = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), _CONTENTS, max_size=4)
_LISTINGS = st.lists(st.none() | _FILES, min_size=1, max_size=5)
Listing = list[FileInput] | None


def listings(files: dict[str, bytes | None] | None) -> Listing:
    if files is None:
        return None
    return [
        FileInput(name=name, content=content, error="gone" if content is None else None)
        for name, content in files.items()
    ]


def run(history: list[dict[str, bytes | None] | None]) -> list[tuple[Listing, Resolution]]:
    steps: list[tuple[Listing, Resolution]] = []
    in_force: Mapping[str, bytes] = {}
    for files in history:
        resolution = resolve(listings(files), in_force)
        steps.append((listings(files), resolution))
        in_force = resolution.in_force
    return steps


def models(resolution: Resolution) -> set[str]:
    return (
        {entry.model.name for entry in resolution.manifest.models} if resolution.manifest else set()
    )


def parsed(in_force: Mapping[str, bytes]) -> list[ParsedFile]:
    return [parse_file(name, content) for name, content in in_force.items()]


def comparable(resolution: Resolution) -> tuple[object, ...]:
    return (resolution.manifest, resolution.in_force, resolution.kept, resolution.whole)


@given(_LISTINGS)
@settings(max_examples=150, deadline=None)
def test_a_model_is_lost_only_by_a_valid_change_or_a_deletion(
    history: list[dict[str, bytes | None] | None],
) -> None:
    """argo-cd#2573, #3996, #10987: everything is pruned by mistake."""
    previous = resolve(None, {})
    for files, resolution in run(history):
        for lost in models(previous) - models(resolution):
            (home,) = [f for f in parsed(previous.in_force) if lost in f.claims.models]
            assert files is not None
            contents = {file.name: file.content for file in files}
            assert any(
                parse_file(name, content).valid and parse_file(name, content).documents
                for name, content in contents.items()
                if content is not None
            )
            if home.name in contents:
                assert resolution.in_force[home.name] == contents[home.name]
        previous = resolution


@given(_LISTINGS)
@settings(max_examples=100, deadline=None)
def test_the_same_listing_again_changes_nothing(
    history: list[dict[str, bytes | None] | None],
) -> None:
    """argo-cd#25444: a sync that never settles."""
    for files, resolution in run(history):
        again = resolve(files, resolution.in_force, parses=resolution.parses)

        assert comparable(again) == comparable(resolution)


@given(_LISTINGS, st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_the_order_of_the_files_does_not_matter(
    history: list[dict[str, bytes | None] | None],
    random: Random,
) -> None:
    in_force: Mapping[str, bytes] = {}
    for files, resolution in run(history):
        shuffled = files
        if files is not None:
            shuffled = random.sample(files, len(files))
        other = resolve(shuffled, dict(reversed(list(in_force.items()))))

        assert comparable(other) == comparable(resolution)
        assert other.problems == resolution.problems
        in_force = resolution.in_force


@given(_LISTINGS)
@settings(max_examples=100, deadline=None)
def test_what_is_in_force_never_clashes_and_survives_a_restart(
    history: list[dict[str, bytes | None] | None],
) -> None:
    for files, resolution in run(history):
        assert list(clashes(file.claims for file in parsed(resolution.in_force))) == []
        assert resolve(None, resolution.in_force).manifest == resolution.manifest
        if resolution.whole:
            assert files is not None
            assert resolution.in_force == {
                file.name: file.content
                for file in files
                if file.content is not None and parse_file(file.name, file.content).documents
            }
