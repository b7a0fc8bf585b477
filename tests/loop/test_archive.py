"""Blocks of an earlier agent hold until what they depend on is otherwise (R7)."""

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from reconciler.apply.histories import Histories
from reconciler.atomic_file import PARTIAL
from reconciler.backend.engine_files import Stamp
from reconciler.backend.engines import Assessment
from reconciler.backend.inventory import Inventory
from reconciler.loop.archive import Archive
from reconciler.loop.books import Books
from reconciler.loop.gpus import Gpus
from reconciler.loop.observation import Look
from reconciler.plan.checks import TextCheck
from reconciler.plan.desired import Desired, DesiredModel, OnFailure, Timeouts
from reconciler.plan.gpu_roll import Roll
from reconciler.plan.ids import GpuUuid, ModelName, NodeName, Nonce
from reconciler.plan.retry import next_attempt_at
from reconciler.plan.revert import LastGood
from reconciler.plan.spec_hash import spec_hash
from tests.backend.build import files, gpu, inventory, llama_server, model
from tests.loop.book_entries import WANTED, M, books, books_of, exited, failed, view

SPEC = replace(model(M), spec_hash=WANTED.spec_hash)
GOOD = LastGood(spec=SPEC.spec, spec_hash=spec_hash(SPEC.spec), files_digest=WANTED.files_digest)


@dataclass(kw_only=True)
class Moments:
    """A clock that stands still. `offset`: of the wall, in seconds after 1970."""

    now: float = 10.0
    offset: float = 1_000_000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self, moment: float) -> str:
        at = datetime.fromtimestamp(moment + self.offset, UTC)
        return at.isoformat(timespec="milliseconds")


class Node:
    """A node whose agents come and go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.boot = "boot-1"
        self.builds = inventory(llama_server())
        self.desired: DesiredModel = SPEC
        self.roll = Roll()
        self.books = Books()
        self.clock = Moments()
        self.archive = self._archive()

    def _archive(self) -> Archive:
        return Archive(Histories(self.folder), self.boot, lambda: self.builds, self.clock)

    async def keep(self, *gone: ModelName) -> None:
        look = Look(desired=self.desired, files=files(), assessment=Assessment())
        looks = {} if M in gone else {M: look}
        await self.archive.keep(self.books, [looks], Gpus(roll=self.roll))

    def restart(self, *, after: float = 40.0, ahead: float = 5000.0) -> list[str]:
        """Gives what is lifted at the start. `after`: seconds; by then the agent's own clock is so
        much `ahead`, as after a reboot."""
        self.clock = Moments(now=self.clock.now + after + ahead, offset=self.clock.offset - ahead)
        self.books, self.archive = Books(), self._archive()
        self.archive.open(self.books)
        wanted = Desired(node=NodeName("n"), revision="r", models=(self.desired,))
        lifted = [
            *self.archive.review(None),
            *self.archive.recheck(wanted),
            *self.archive.review(self.roll),
        ]
        for each in lifted:
            self.books.lift(each.model, each.failure)
        return [each.why for each in lifted]


@pytest.fixture
async def node(tmp_path: Path) -> Node:
    made = Node(tmp_path / "history")
    made.books = books()
    for _ in range(3):
        made.books.book_exit(exited("load"))
    await made.keep()
    return made


async def test_a_block_outlives_the_agent(node: Node) -> None:
    assert node.restart() == []
    (block,) = node.books.lasting(M)
    assert (block.reason, block.count) == ("exited with code 1", 3)
    await node.keep()
    assert node.restart() == []
    assert node.books.lasting(M)


async def test_a_new_boot_clears_exits_and_nothing_else(node: Node) -> None:
    node.books.book_outcome(
        replace(failed("start"), files_digest=WANTED.files_digest, permanent=True), at=1.0
    )
    node.books.note_good(M, GOOD)
    await node.keep()
    node.boot = "boot-2"
    node.restart()
    assert [each.during for each in node.books.lasting(M)] == ["start"]
    assert node.books.last_good(M) == GOOD


async def test_another_engine_lifts_it_and_the_same_one_does_not(node: Node) -> None:
    stamp = Stamp("/opt/llama.cpp/llama-server", (1, 2, 3, 4))
    there = inventory(replace(llama_server(), files=(stamp,)))
    node.builds = there
    assert node.restart() == [f"there is another engine: {llama_server().detail}"]
    assert node.books.lasting(M) == ()


async def test_it_holds_until_the_engines_are_known(node: Node) -> None:
    """They are asked while the agent works already; that another one is there counts still."""
    there, node.builds = node.builds, Inventory()
    assert node.restart() == []
    assert node.books.lasting(M)
    node.builds = replace(there, builds=(replace(llama_server(), version="another"),))
    (lifted,) = node.archive.review(node.roll)
    assert lifted.why.startswith("there is another engine: ")


async def test_an_inode_alone_is_no_other_engine(tmp_path: Path) -> None:
    def built(inode: int) -> Inventory:
        stamp = Stamp("/opt/llama.cpp/llama-server", (1, inode, 3, 4))
        return inventory(replace(llama_server(), files=(stamp,)))

    node = Node(tmp_path)
    node.builds = built(1)
    node.books = books()
    for _ in range(3):
        node.books.book_exit(exited("load"))
    await node.keep()
    node.builds = built(2)
    assert node.restart() == []


async def test_another_gpu_lifts_blocks_of_models_on_gpus(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.roll = Roll(devices=(gpu(),))
    node.desired = replace(SPEC, gpus=(GpuUuid(gpu().identity),))
    node.books = books()
    for _ in range(3):
        node.books.book_exit(exited("load"))
    await node.keep()
    assert node.restart() == []
    node.roll = Roll(devices=(replace(gpu(), name="another card"),))
    assert node.restart() == [f"GPU {gpu().identity} can be used now"]


async def test_a_crash_is_told_by_the_next_agent_until_it_has_loaded_again(tmp_path: Path) -> None:
    """What is suspended is not started meanwhile."""
    node = Node(tmp_path)
    node.books = books()
    node.books.see(view(loaded=True))
    node.books.book_exit(exited("run"))
    await node.keep()
    node.restart()
    (crash,) = node.books.lasting(M)
    assert (crash.during, crash.reason, crash.permanent) == ("run", "exited with code 1", False)
    node.books.see(view("n2", loaded=True))
    await node.keep()
    node.restart()
    assert node.books.failure(M) is None


async def test_a_refused_download_is_not_kept(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.books = books()
    node.books.book_outcome(replace(failed("fetch"), permanent=True), at=1.0)
    await node.keep()
    node.restart()
    assert node.books.failure(M) is None


async def test_tries_that_cost_nothing_do_not_begin_anew_either(tmp_path: Path) -> None:
    """A surge that fails again and again, under agents that come and go, is blocked all the
    same."""
    node = Node(tmp_path)
    node.books = books()
    for count in (1, 2, 3):
        node.books.book_exit(replace(exited("load"), at=node.clock.now))
        await node.keep()
        assert node.restart(after=2.0) == []
        (failure,) = node.books.lasting(M)
        assert (failure.count, failure.permanent) == (count, count == 3)
        node.books.want({M: [WANTED.spec_hash]})
        due = next_attempt_at(failure, key=M)
        assert due is None or due > node.clock.now


async def test_a_load_that_went_well_ends_what_is_kept_of_those_that_failed(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.books = books()
    node.books.book_exit(exited("load"))
    node.books.see(view("n2", loaded=True))
    await node.keep()
    node.restart()
    assert node.books.failure(M) is None


async def test_restarts_are_counted_over_agents(tmp_path: Path) -> None:
    """To start it after an agent that ended is none."""
    node = Node(tmp_path)
    for _ in range(2):
        node.books.want({M: [WANTED.spec_hash]})
        node.books.see(view("n1", loaded=True))
        node.books.book_exit(exited("run", "n1"))
        node.books.see(view("n2", loaded=True))
        await node.keep()
        node.restart()
    assert (node.books.restarts(M), node.books.restart_causes(M)) == (2, (("crashed", 2),))


async def test_a_cause_of_a_later_release_is_left_out(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.books.note_good(M, GOOD)
    await node.keep()
    path = tmp_path / f"{M}.json"
    written = json.loads(path.read_text())
    path.write_text(json.dumps(written | {"restarts": {"hung": 1, "bored": 2}}))
    node.restart()
    assert node.books.restart_causes(M) == (("hung", 1),)


async def test_tries_that_stop_what_serves_do_not_begin_anew(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.books = books_of(OnFailure.REVERT)
    for _ in range(2):
        node.books.book_exit(exited("load"))
    await node.keep()
    node.restart()
    (failure,) = node.books.lasting(M)
    assert (failure.count, failure.permanent) == (2, False)


async def test_the_next_try_is_due_when_it_was_however_often_the_agent_restarts(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path)
    node.books = books_of(OnFailure.REVERT)
    node.books.book_exit(exited("load"))  # at 10, so its next try is due at 310
    await node.keep()
    written = (tmp_path / f"{M}.json").read_bytes()
    for passed in (100.0, 200.0, 300.0, 400.0):
        node.restart(after=100.0)
        (failure,) = node.books.lasting(M)
        due = next_attempt_at(failure, key=M)
        assert due is not None
        assert due - node.clock.now == pytest.approx(300.0 - passed)
        await node.keep()
    assert (tmp_path / f"{M}.json").read_bytes() == written


async def test_a_wall_clock_that_was_set_back_makes_no_try_wait_longer_than_its_pause(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path)
    node.books = books_of(OnFailure.REVERT)
    node.books.book_exit(exited("load"))
    await node.keep()
    node.restart(after=-80_000.0)
    (failure,) = node.books.lasting(M)
    assert failure.at == node.clock.now


async def test_other_checks_or_times_lift_it_though_no_agent_ran_when_they_were_edited(
    node: Node,
) -> None:
    await node.keep()
    check = TextCheck(text="count", chat=False, contains=("1",), max_tokens=1)
    node.desired = replace(node.desired, checks=(check,))
    assert node.restart() == ["its checks or timeouts have changed"]
    assert node.books.lasting(M) == ()


async def test_other_checks_lift_nothing_that_failed_before_its_load(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.books = books()
    refused = replace(failed("start"), files_digest=WANTED.files_digest, permanent=True)
    node.books.book_outcome(refused, at=1.0)
    await node.keep()
    node.desired = replace(node.desired, timeouts=Timeouts(ready=7.0))
    assert node.restart() == []
    assert node.books.lasting(M)


async def test_a_crash_loop_is_known_to_the_next_agent(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.books = books()
    node.books.see(view(loaded=True))
    for _ in range(3):
        node.books.book_exit(exited("run"))
    await node.keep()
    node.restart()
    (failure,) = node.books.lasting(M)
    assert (failure.count, failure.permanent, failure.is_crash_loop) == (3, False, True)


async def test_nothing_is_kept_of_a_model_that_is_gone(node: Node) -> None:
    node.books.keep_only(())
    await node.keep(M)
    assert list(node.folder.iterdir()) == []


async def test_a_disk_that_takes_nothing_is_told_and_tried_again(node: Node) -> None:
    obstacle = node.folder / f"{M}.json{PARTIAL}"
    obstacle.mkdir()
    node.books.note_good(M, GOOD)
    await node.keep()
    (problem,) = node.archive.problems
    assert "a restart would not know" in problem
    obstacle.rmdir()
    await node.keep()
    assert node.archive.problems == ()
    node.restart()
    assert node.books.last_good(M) == GOOD


async def test_how_long_loads_took_outlives_the_agent(node: Node) -> None:
    took = replace(view("n9"), started_at=5.0, loaded_at=9.0)
    node.books.stopwatch.see(SPEC, [took])
    await node.keep()
    node.restart()
    (load,) = node.books.stopwatch.past(M).loads
    assert (load.seconds, load.spec_hash) == (4.0, WANTED.spec_hash)
    node.books.stopwatch.see(SPEC, [replace(took, nonce=Nonce("n10"), loaded_at=11.0)])
    await node.keep()
    node.restart()
    assert [each.seconds for each in node.books.stopwatch.past(M).loads] == [4.0, 6.0]
