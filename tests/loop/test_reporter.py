"""Which models' files have gone from under them."""

from dataclasses import replace

import pytest

from reconciler.apply.backends import BackendView
from reconciler.backend.engines import Assessment
from reconciler.loop.observation import Look, Seen
from reconciler.loop.reporter import files_gone
from reconciler.plan.desired import DesiredModel, Format, ModelSpec
from reconciler.plan.ids import Place
from reconciler.plan.observed import FilesCached
from tests.loop.book_entries import OLD, WANTED, M, view

RUNS = view(loaded=True)
DESIRED = DesiredModel(
    name=M,
    spec=ModelSpec(source="gguf/a"),
    spec_hash=WANTED.spec_hash,
    place=Place(file="a.yaml", line=1, column=1),
)
HERE = FilesCached(digest=WANTED.files_digest, path="/m/x", root="/m", format=Format.GGUF)
GONE = Look(desired=DESIRED, files=None, assessment=Assessment())


def gone(look: Look, runs: BackendView = RUNS, *, reads_removed: bool = False) -> bool:
    removed = frozenset({runs.nonce}) if reads_removed else frozenset()
    seen = Seen(views={M: (runs,)}, in_flight={}, leftovers=(), reads_removed=removed)
    return M in files_gone({M: look}, seen)


def test_files_that_are_not_here_any_more_or_are_read_without_a_name_have_gone() -> None:
    assert gone(GONE)
    assert gone(replace(GONE, files=HERE), reads_removed=True)


@pytest.mark.parametrize(
    ("look", "runs"),
    [
        (replace(GONE, files=HERE), RUNS),
        (replace(GONE, desired=replace(DESIRED, enabled=False)), RUNS),
        (GONE, replace(RUNS, instance=OLD)),
        (GONE, replace(RUNS, stopping=True)),
    ],
    ids=["here", "disabled", "of another spec", "ending"],
)
def test_others_have_not(look: Look, runs: BackendView) -> None:
    assert not gone(look, runs)
