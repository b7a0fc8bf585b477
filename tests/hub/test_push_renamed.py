"""Pushes in which a content has another name than before: it stays where it was, for all."""

import hashlib
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reconciler.hub.catalog import CATALOG, catalog_key
from reconciler.hub.integrity import bad_by_content, bad_by_size
from reconciler.hub.prefix_state import read_state
from reconciler.hub.revision import files_of_revision
from tests.hub.hubs import KINDS, Hub, Servers, hub, new_hub, reader, servers
from tests.hub.reading import read_all
from tests.hub.test_gc import collected, policy
from tests.hub.test_push import PREFIX, current, files_of, folder_of, pushed

__all__ = ["hub", "servers"]

PATHS = ("a.gguf", "b.gguf", "sub/a.gguf", "a.gguf.d/x", "LICENCE")
CONTENTS = (b"one", b"two", b"three", b"")


def pulled(hub: Hub, digest: str | None = None) -> dict[str, bytes]:
    """As a node pulls it; each file's SHA-256 is compared."""
    with reader(hub) as store:
        items = files_of_revision(store, PREFIX, digest)
        found = {item.path: read_all(store, item) for item in items}
    assert [item.sha256 for item in items] == [
        hashlib.sha256(found[item.path]).hexdigest() for item in items
    ]
    return found


def check_whole(hub: Hub, expected: dict[str, dict[str, bytes]]) -> None:
    """`expected`: the files of each digest that must be pullable."""
    state = read_state(hub.writer, PREFIX)
    assert not state.damaged
    assert {each.catalog.digest for each in state.pushed} == set(expected)
    for each in state.pushed:
        assert bad_by_size(each.catalog, state) == ()
        assert bad_by_content(hub.writer, PREFIX, each.catalog.files, lambda _count: None) == ()
    for digest, files in expected.items():
        assert pulled(hub, digest) == files


@pytest.mark.parametrize(
    "later",
    [
        {"b.gguf": b"weights", "README.md": b"words"},
        {"a.gguf": b"weights", "README.md": b"words", "LICENCE": b"words"},
        {"a.gguf": b"weights", "README.md": b"words", "sub/README.md": b"words"},
        {"a.gguf": b"words", "README.md": b"weights"},
    ],
    ids=["renamed", "copied", "copied-into-a-folder", "swapped"],
)
def test_a_content_under_another_name_is_not_sent_again(
    hub: Hub, tmp_path: Path, later: dict[str, bytes]
) -> None:
    before = {"a.gguf": b"weights", "README.md": b"words"}
    first = pushed(hub, folder_of(tmp_path, before, "first"))

    outcome = pushed(hub, folder_of(tmp_path, later, "later"))

    assert (outcome.is_new, outcome.uploaded) == (True, ())
    assert pulled(hub) == later
    check_whole(hub, {first.catalog.digest: before, outcome.catalog.digest: later})
    assert pushed(hub, folder_of(tmp_path, later, "later")).is_new is False


def test_a_renamed_file_outlives_the_push_that_brought_it(hub: Hub, tmp_path: Path) -> None:
    pushed(hub, folder_of(tmp_path, {"a.gguf": b"weights"}, "first"))
    later = {"b.gguf": b"weights"}
    digest = pushed(hub, folder_of(tmp_path, later, "later")).catalog.digest

    collected(hub, policy())

    check_whole(hub, {digest: later})
    assert set(hub.content(PREFIX)) == {"a.gguf", CATALOG, catalog_key(digest)}


def test_the_old_name_can_be_taken_by_another_content(hub: Hub, tmp_path: Path) -> None:
    pushed(hub, folder_of(tmp_path, {"a.gguf": b"weights"}, "1"))
    pushed(hub, folder_of(tmp_path, {"b.gguf": b"weights"}, "2"))
    both = {"a.gguf": b"another", "b.gguf": b"weights"}

    pushed(hub, folder_of(tmp_path, both, "3"), again=True)

    assert files_of(hub, current(hub.writer)) == both
    assert pulled(hub) == both


_pushes = st.tuples(
    st.just("push"),
    st.dictionaries(st.sampled_from(PATHS), st.sampled_from(CONTENTS), min_size=1, max_size=4),
    st.booleans(),
    st.booleans(),
)
_sweeps = st.tuples(
    st.just("gc"), st.integers(1, 3), st.sets(st.integers(0, 5), max_size=2), st.none()
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=15, deadline=None)
@given(steps=st.lists(st.one_of(_pushes, _pushes, _sweeps), min_size=2, max_size=6))
def test_whatever_is_pushed_in_turn_every_kept_digest_can_be_pulled(
    servers: Servers, kind: str, steps: list[tuple[object, ...]]
) -> None:
    with TemporaryDirectory() as folder, new_hub(kind, servers, Path(folder)) as hub:
        expected: dict[str, dict[str, bytes]] = {}
        in_force: dict[str, bytes] = {}
        for number, step in enumerate(steps):
            match step:
                case ("push", dict(files), bool(keep_others), bool(again)):
                    outcome = pushed(
                        hub,
                        folder_of(Path(folder), files, str(number)),
                        keep_others=keep_others,
                        again=again,
                    )
                    in_force = {**in_force, **files} if keep_others else files
                    expected[outcome.catalog.digest] = in_force
                    assert pulled(hub) == in_force
                case ("gc", int(keep), set(pinned), None):
                    kept = [each for at, each in enumerate(expected) if at in pinned]
                    found = collected(hub, policy(keep=keep, digests=kept))
                    assert not set(kept) & set(found.digests)
                    for digest in found.digests:
                        del expected[digest]
                case _:
                    raise AssertionError(step)
            check_whole(hub, expected)
