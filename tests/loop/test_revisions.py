"""What came of revisions: by the status alone, kept over restarts."""

from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.apply.attempts import AttemptsFile
from reconciler.attempt import KEPT, Attempt, Outcome
from reconciler.events import EventKind, Journal
from reconciler.loop.conditions import stamped
from reconciler.loop.intent import Understanding
from reconciler.loop.revisions import Revisions
from reconciler.loop.standing import Summary, Wish, model_facts, node_facts
from reconciler.manifest.problem import Problem
from reconciler.manifest.resolve import no_manifest
from reconciler.plan.desired import Desired
from reconciler.plan.ids import ModelName, NodeName, Place
from reconciler.plan.phase import State
from reconciler.status import ModelDetail, ModelStatus, Revision, Status
from tests.loop.test_standing import model, target

WRONG = Problem(place=Place(file="a.yaml", line=3, column=5), path="spec", message="unknown key")
SERVES, LOADS = model(), model(State.LOADING)
FAILS = model(State.ERROR, detail=ModelDetail(failures_in_a_row=1))


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self, moment: float) -> str:
        return f"2026-03-01T12:00:{moment:06.3f}+00:00"


class Node:
    """An agent's history, and the ones before it in the same folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "revisions.json"
        self.clock = Clock()
        self.journal = Journal(node=NodeName("n"), now=lambda: "t")
        self.revisions = self._revisions()

    async def restart(self) -> None:
        self.revisions = self._revisions()
        await self.revisions.open()

    async def see(
        self,
        revision: str,
        *models: ModelStatus,
        problem: Problem | None = None,
        also: Problem | None = None,
    ) -> bool:
        now = Understanding(
            desired=Desired(node=NodeName("n"), revision=revision),
            revision=Revision(attempted=revision),
            location="/x",
            whole=problem is None,
            problems=tuple(each for each in (also, problem) if each is not None),
        )
        return await self.revisions.see(_status(now, *models), now)

    @property
    def last(self) -> Attempt:
        return self.revisions.attempts[-1]

    @property
    def outcomes(self) -> list[tuple[str, str]]:
        return [(each.revision, each.outcome) for each in self.revisions.attempts]

    def _revisions(self) -> Revisions:
        return Revisions(AttemptsFile(self._path), self.journal, self.clock)


def _status(now: Understanding, *models: ModelStatus) -> Status:
    listed = [
        replace(
            each,
            name=ModelName(f"m{number}"),
            conditions=stamped(model_facts(each, Wish(there=True)), (), now="t"),
        )
        for number, each in enumerate(models)
    ]
    facts = node_facts(Summary(understanding=now, models=listed))
    conditions = stamped(facts, (), now="t")
    return Status(node=NodeName("n"), models=tuple(listed), conditions=conditions)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_a_revision_is_applied_once_all_is_as_it_wants_it(node: Node) -> None:
    await node.see("r1", LOADS)
    assert (node.last.outcome, node.last.reason) == (Outcome.WAITING, "waits for m0")
    node.clock.now = 7.5
    await node.see("r1", SERVES)
    assert (node.last.outcome, node.last.seconds) == (Outcome.APPLIED, 7.5)
    assert node.last.models == ()


async def test_what_fails_later_is_no_fault_of_the_revision(node: Node) -> None:
    await node.see("r1", SERVES)
    await node.see("r1", FAILS)
    assert node.outcomes == [("r1", "applied")]


async def test_a_revision_that_fails_in_part_names_which_models(node: Node) -> None:
    await node.see("r1", SERVES, FAILS, LOADS)
    assert node.outcomes == [("r1", "waiting")]
    await node.see("r1", SERVES, FAILS, model(target=target(State.BLOCKED)))
    assert node.outcomes == [("r1", "failed")]
    assert [each.model for each in node.last.models] == ["m1", "m2"]
    assert node.last.settled_at is not None


async def test_what_failed_may_be_applied_after_all(node: Node) -> None:
    await node.see("r1", FAILS)
    node.clock.now = 20.0
    await node.see("r1", SERVES)
    assert (node.last.outcome, node.last.seconds) == (Outcome.APPLIED, 20.0)


async def test_a_refused_revision_keeps_its_errors(node: Node) -> None:
    await node.see("r1", SERVES)
    await node.see("r2", SERVES, problem=WRONG)
    await node.see("r3", SERVES)
    assert node.outcomes == [("r1", "applied"), ("r2", "refused"), ("r3", "applied")]
    assert node.revisions.attempts[1].problems == (str(WRONG),)


async def test_that_no_manifest_is_left_is_no_error_beside_what_is_wrong_with_it(
    node: Node,
) -> None:
    """`validate` counts that one, too."""
    await node.see("r1", SERVES, problem=WRONG, also=no_manifest(1))
    assert node.last.problems == (str(WRONG),)
    assert node.last.reason.startswith("1 error; ")
    await node.see("r2", SERVES, problem=no_manifest(0))
    assert node.last.problems == (str(no_manifest(0)),)


async def test_one_that_was_not_done_is_superseded(node: Node) -> None:
    await node.see("r1", LOADS)
    await node.see("r2", LOADS)
    assert node.outcomes == [("r1", "superseded"), ("r2", "waiting")]
    assert node.revisions.attempts[0].reason == "r2 came before it was done (waits for m0)"


async def test_the_next_agent_goes_on_with_what_this_one_knew(node: Node) -> None:
    await node.see("r1", SERVES)
    await node.see("r2", LOADS)
    node.clock.now = 30.0
    await node.restart()
    await node.see("r2", SERVES)
    assert node.outcomes == [("r1", "applied"), ("r2", "applied")]
    assert node.last.seconds == 30.0


async def test_only_the_last_revisions_are_kept(node: Node) -> None:
    for number in range(KEPT + 5):
        await node.see(f"r{number}", SERVES)
    await node.restart()
    assert [each.revision for each in node.revisions.attempts] == [
        f"r{number}" for number in range(5, KEPT + 5)
    ]


async def test_a_source_that_is_lost_is_no_new_revision(node: Node) -> None:
    await node.see("r1", SERVES)
    lost = Understanding(source_error="gone", revision=Revision(applied="r1"))
    assert await node.revisions.see(_status(lost), lost)
    assert node.outcomes == [("r1", "applied")]


async def test_a_damaged_file_is_told_kept_and_written_anew(node: Node, tmp_path: Path) -> None:
    path = tmp_path / "revisions.json"
    path.write_bytes(b'{"version": 1, "revisions": [')
    await node.restart()
    (problem,) = node.revisions.problems
    assert problem.startswith(f"cannot read {path}: ")
    assert not await node.see("r1", SERVES)  # what was told before is to be taken back
    assert node.revisions.problems == ()
    assert (tmp_path / "revisions.json.unread").read_bytes().endswith(b"[")
    (event,) = node.journal.after(0).events
    assert event.kind is EventKind.RECORD_REWRITTEN
    await node.restart()
    assert node.outcomes == [("r1", "applied")]


async def test_what_cannot_be_written_is_told_and_tried_again(node: Node, tmp_path: Path) -> None:
    blocker = tmp_path / "revisions.json"
    blocker.mkdir()
    assert not await node.see("r1", SERVES)
    assert "cannot write" in node.revisions.problems[0]
    assert not await node.see("r1", SERVES)
    blocker.rmdir()
    assert not await node.see("r1", SERVES)  # the problem is to be taken back
    assert await node.see("r1", SERVES)
    assert node.revisions.problems == ()


async def test_a_commit_that_cannot_be_read_is_refused_and_the_one_before_stays(node: Node) -> None:
    await node.see("r1", SERVES)
    unsigned = Understanding(
        source_error="no good signature", note="b (kim)", revision=Revision(attempted="r2")
    )
    await node.revisions.see(_status(unsigned), unsigned)
    assert node.outcomes == [("r1", "applied"), ("r2", "refused")]
    assert (node.last.reason, node.last.note) == ("no good signature", "b (kim)")
    await node.see("r2", SERVES)
    assert node.outcomes == [("r1", "applied"), ("r2", "applied")]
