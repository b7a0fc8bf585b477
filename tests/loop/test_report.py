"""What is published of a model's files: which are in force, and how far others are."""

from dataclasses import replace
from typing import Any

import pytest

from reconciler.apply.pushes import Noticed
from reconciler.backend.inventory import Inventory
from reconciler.loop.report import ModelFacts, model_status
from reconciler.plan.actions import Outlook
from reconciler.plan.ids import FilesDigest
from reconciler.plan.observed import FilesCached, Push
from reconciler.plan.phase import State
from reconciler.status import Doing, ModelStatus, Progress
from tests.backend.build import model
from tests.loop.test_books import M
from tests.loop.test_newer_pushes import FILES

HALF = Progress(
    doing=Doing.FETCH,
    done_bytes=500_000_000,
    total_bytes=1_000_000_000,
    bytes_per_second=50e6,
    seconds_left=10.0,
)
NOTICED = Noticed(
    push=Push(digest=FilesDigest("p"), revision=FilesDigest("q"), verified=True), reason="news"
)


def status_of(**facts: Any) -> ModelStatus:
    outlook = Outlook(model=M, state=State.LOADED, reason="serves")
    return model_status(outlook, ModelFacts(desired=model(), **facts), Inventory(), wall=str)


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (FILES, ("new", "all", True)),
        (replace(FILES, verified=False), ("new", "all", False)),
        (replace(FILES, revision=None, verified=False), ("new", None, None)),
        (None, (None, None, None)),
    ],
    ids=["catalog", "no catalog", "in place", "not here"],
)
def test_digests_and_whether_they_are_verified_are_told(
    files: FilesCached | None, told: tuple[object, ...]
) -> None:
    status = status_of(files=files)

    assert (status.digest, status.revision, status.verified) == told


def test_a_push_that_comes_beside_what_serves_says_how_far_it_is() -> None:
    quiet = status_of(files=FILES, noticed=NOTICED)
    coming = status_of(files=FILES, noticed=replace(NOTICED, progress=HALF))

    assert (quiet.newer and quiet.newer.reason, quiet.progress) == ("news", None)
    assert coming.progress == HALF
    assert coming.newer is not None
    assert coming.newer.reason == "news; 476.8 of 953.7 MiB (50 %), 48 MiB/s, 10 s left"
