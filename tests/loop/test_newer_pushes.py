"""Which models' pushes are watched, and bytes that a catalog gave another digest (R4)."""

from dataclasses import replace
from typing import Any

import pytest

from reconciler.backend.engines import Assessment
from reconciler.loop.books import Books
from reconciler.loop.hub_subjects import damaged, doubts, watched
from reconciler.loop.observation import Look, Seen, observed
from reconciler.plan.desired import Format, Refresh
from reconciler.plan.ids import FilesDigest, ModelName, SpecHash
from reconciler.plan.observed import FilesCached, Observed
from tests.backend.build import model
from tests.loop.book_entries import WANTED, M, books, exited, failed, view

FILES = FilesCached(
    digest=FilesDigest("new"),
    path="/x.gguf",
    root="/",
    format=Format.GGUF,
    revision=FilesDigest("all"),
    verified=True,
    former=WANTED.files_digest,
)


def no_model(model: ModelName) -> bool:
    return not model


def look(files: FilesCached | None = FILES, **changes: Any) -> Look:
    desired = replace(model(M), spec_hash=WANTED.spec_hash, **changes)
    return Look(desired=desired, files=files, assessment=Assessment())


def seen_by_the_planner(files: FilesCached, pages: Books) -> Observed:
    seen = Seen(views={M: (view(loaded=True),)}, in_flight={}, leftovers=())
    return observed(seen, {M: look(files)}, pages, None, misplaced={}, max_parallel_loads=1)


def test_a_process_of_the_same_bytes_is_the_same_instance() -> None:
    pages = books()
    pages.book_exit(exited("run"))

    found = seen_by_the_planner(FILES, pages).models[M]

    assert found.processes[0].instance == replace(WANTED, files_digest=FILES.digest)
    assert found.failure is not None
    assert found.failure.files_digest == FILES.digest


def test_a_process_of_other_bytes_is_another_instance() -> None:
    other = replace(FILES, former=FilesDigest("other"))

    found = seen_by_the_planner(other, books()).models[M]

    assert found.processes[0].instance == WANTED


def test_bytes_that_serve_under_their_former_digest_are_not_doubted() -> None:
    bad = replace(look(), assessment=Assessment(refusal="no GGUF", bad_files=True))
    serving = Seen(views={M: (view(loaded=True),)}, in_flight={}, leftovers=())
    nothing = Seen(views={}, in_flight={}, leftovers=())

    assert doubts(serving, {M: bad}, books()) == {}
    assert doubts(nothing, {M: bad}, books()).keys() == {M}


def test_only_what_is_blocked_by_damage_is_looked_at_for_its_end() -> None:
    """Another spec, or files that came by another model, have nothing to wait for."""
    pages = books()
    assert damaged({M: look(None)}, pages) == {}
    pages.book_outcome(replace(failed("fetch"), permanent=True, damaged=True), at=1.0)

    assert damaged({M: look(None)}, pages) == {M: model().spec}
    assert damaged({M: look()}, pages) == {}
    other = replace(look(None), desired=replace(look().desired, spec_hash=SpecHash("1:other")))
    assert damaged({M: other}, pages) == {}


def test_a_models_files_from_the_hub_are_watched() -> None:
    wanted = look(refresh=Refresh.AUTO, keep_last_good=False)
    (found,) = watched({M: wanted}, (), suspended=no_model).values()

    assert (found.digest, found.refresh) == (FILES.digest, Refresh.AUTO)
    assert found.gives_way


def test_a_suspended_node_only_tells_of_a_push() -> None:
    (found,) = watched({M: look(refresh=Refresh.AUTO)}, (), suspended=lambda _: True).values()

    assert found.refresh is Refresh.NEVER


@pytest.mark.parametrize(
    "each",
    [
        look(None),
        look(replace(FILES, revision=None)),
        look(spec=replace(model().spec, digest="0" * 64)),
    ],
    ids=["not here", "in place", "pinned"],
)
def test_what_cannot_have_a_newer_push_is_not_watched(each: Look) -> None:
    assert watched({M: each}, (), suspended=no_model) == {}


def test_files_that_are_doubted_are_looked_at_otherwise() -> None:
    assert watched({M: look()}, {M}, suspended=no_model) == {}
