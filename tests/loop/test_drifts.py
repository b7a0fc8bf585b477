"""What came to be otherwise by itself: found once, ended once, and what was done is told."""

import subprocess
from collections.abc import Iterator
from dataclasses import replace

import pytest

from reconciler.apply.backends import BackendExited
from reconciler.cache.news import FileDoubted, FileRotten
from reconciler.condition import Reason
from reconciler.events import Event, Journal
from reconciler.loop.conditions import stamped
from reconciler.loop.drifts import Drifts, Sighting
from reconciler.loop.gpu_memory import GpuFigures
from reconciler.loop.standing import Wish, model_facts
from reconciler.loop.strangers import Stranger, strangers
from reconciler.plan.ids import ModelName, NodeName, Nonce, SpecHash
from reconciler.plan.phase import State
from reconciler.status import DrainingStatus, Drift, EngineStatus, ModelStatus
from tests.loop.book_entries import exited
from tests.loop.test_gpu_memory import figures
from tests.loop.test_standing import model, target

M = ModelName("m")
GIB = 1 << 30
KILLED = replace(exited("run"), code=None, signal="SIGKILL", reason="SIGKILL 3 s after its start")
FAILED = model(State.ERROR, reason="killed", retry_at="t9")
OTHER = Stranger(pid=7, name="python", gpu="G", where="GPU 0", held_bytes=GIB, of_an_agent=False)


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wall(self, moment: float) -> str:
        return f"t{moment:g}"


class Node:
    def __init__(self) -> None:
        self.journal = Journal(node=NodeName("n"), now=lambda: "t")
        self.clock = Clock()
        self.drifts = Drifts(self.journal, self.clock)

    def see(self, *models: ModelStatus, **sighting: object) -> list[Drift]:
        found = self.drifts.see(models, Sighting(**sighting))  # type: ignore[arg-type]
        return [*found(None), *found(M)]

    @property
    def events(self) -> list[Event]:
        return list(self.journal.after(0).events)

    @property
    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


@pytest.fixture
def node() -> Node:
    return Node()


def test_a_process_that_somebody_kills_drifts_until_the_model_serves_again(node: Node) -> None:
    node.drifts.exited(KILLED)
    (drift,) = node.see(FAILED)
    assert (drift.kind, drift.since) == ("ProcessEnded", "t0")
    assert drift.what == "pid 1: SIGKILL 3 s after its start"
    assert drift.done == "it is tried again at t9"
    node.clock.now = 5.0
    (drift,) = node.see(model(State.LOADING))
    assert (drift.done, drift.since) == ("its process was started again", "t0")
    assert node.see(model(pid=2)) == []
    found, ended = node.events
    assert (found.kind, found.data["drift"]) == ("DriftFound", "ProcessEnded")
    assert found.reason == "pid 1: SIGKILL 3 s after its start; it is tried again at t9"
    assert ended.kind == "DriftEnded"
    assert ended.reason.startswith("it serves again (pid 2); it was: pid 1: SIGKILL")


def test_one_that_another_serves_beside_is_told_all_the_same(node: Node) -> None:
    """As the new one of a change without a gap: the old one has never stopped serving."""
    node.see(model(pid=9, target=replace(target(State.LOADING), pid=1)))
    node.drifts.exited(KILLED)
    assert node.see(model(pid=9, target=target(State.ERROR), retry_at="t5")) == []
    found, ended = node.events
    assert (found.kind, ended.kind) == ("DriftFound", "DriftEnded")
    assert found.reason.endswith("; pid 9 serves on; it is tried again at t5")
    assert ended.reason.startswith("pid 9 serves on; it was: pid 1: SIGKILL")


def test_one_whose_predecessor_drains_still_and_serves_on(node: Node) -> None:
    drains = DrainingStatus(nonce=Nonce("o"), pid=9, spec_hash=SpecHash("1:o"), reason="drains")
    node.see(model(pid=1, draining=(drains,)))
    node.drifts.exited(KILLED)
    assert node.see(model(pid=9)) == []
    found, ended = node.events
    assert found.reason.endswith("after its start; pid 9 serves on")
    assert ended.reason.startswith("pid 9 serves on; it was")


def test_one_that_was_started_again_between_two_looks_serves_again(node: Node) -> None:
    node.see(model(pid=1))
    node.drifts.exited(KILLED)
    assert node.see(model(pid=2)) == []
    found, ended = node.events
    assert found.reason.endswith("its process was started again")
    assert ended.reason.startswith("it serves again (pid 2)")


def test_where_the_last_good_spec_comes_back_it_is_that_which_is_told(node: Node) -> None:
    blocked, why = target(State.BLOCKED), "the new one is blocked"
    node.drifts.exited(KILLED)
    waits = model(State.ERROR, retry_at="t9", target=blocked)  # it cannot come back just now
    (drift,) = node.see(waits)
    assert drift.done == "it is tried again at t9"
    (drift,) = node.see(model(State.LOADING, degraded=why, target=blocked))
    assert drift.done == "its process was started again"
    (drift,) = node.see(model(State.PENDING, degraded=why, target=blocked))
    assert drift.done == "it is to be started again"


@pytest.mark.parametrize(
    "end",
    [
        exited("stop"),
        exited("load"),
        replace(exited("load"), code=None, signal="SIGSEGV"),
    ],
)
def test_what_was_asked_for_or_failed_by_itself_is_no_drift(node: Node, end: BackendExited) -> None:
    node.drifts.exited(end)
    assert node.see(FAILED) == []


def test_a_model_that_goes_ends_its_drift(node: Node) -> None:
    node.drifts.exited(KILLED)
    node.see(FAILED)
    assert node.see() == []
    assert node.events[-1].reason.startswith("the model has gone")


def test_a_rotten_file_drifts_until_the_model_serves_with_another(node: Node) -> None:
    rotten = FileRotten(
        prefix="gguf/a",
        digest="d",
        path="a.gguf",
        size_bytes=1,
        cause="its size is 0",
        models=("m",),
    )
    node.drifts.cache_changed(rotten)
    (drift,) = node.see(model(target=target(State.CACHING)))
    assert drift.kind == "FilesChanged"
    assert drift.what == "a.gguf of gguf/a is not what was pushed: its size is 0"
    assert drift.done == "its files are looked at, and what is missing or in doubt is fetched"
    assert node.see(model()) == []
    assert node.kinds == ["DriftFound", "DriftEnded"]


def test_that_it_served_on_is_told_and_no_start_that_never_was(node: Node) -> None:
    doubted = FileDoubted(
        prefix="gguf/a", digest="d", path="a.gguf", size_bytes=1, done="it comes", models=("m",)
    )
    node.see(model(pid=7))
    node.drifts.cache_changed(doubted)
    (drift,) = node.see(model(target=target(State.PENDING), pid=7))
    assert drift.done == "its files are to be looked at"
    (drift,) = node.see(model(target=target(State.CACHING), pid=7))
    assert drift.what.startswith("a.gguf of gguf/a looks changed since it was fetched, and nobody")
    node.see(model(pid=7))
    end = "its files are here and were looked at; pid 7 has served on; it was: "
    assert node.events[-1].reason == end + drift.what

    node.drifts.cache_changed(doubted)
    node.see(model(target=target(State.CACHING), pid=7))
    node.see(model(pid=8))
    assert node.events[-1].reason.startswith("it serves again (pid 8); it was: ")

    node.drifts.cache_changed(doubted)
    node.see(model(pid=9))
    assert node.events[-1].reason.startswith("it serves again (pid 9); it was: ")


def test_files_that_are_gone_drift_for_as_long_as_they_are(node: Node) -> None:
    for _ in range(2):
        (drift,) = node.see(model(), files_gone={M: "its files have gone"})
        assert drift.done == "its files are to be looked at"
    assert node.see(model()) == []
    assert node.kinds == ["DriftFound", "DriftEnded"]


def test_another_engine_is_told_and_nothing_is_done(node: Node) -> None:
    differs = model(engine=EngineStatus(name=None, version="1", drift="1 runs, 2 is installed"))
    node.see(differs)
    (drift,) = node.see(differs)
    assert (drift.kind, drift.what) == ("LaunchDiffers", "1 runs, 2 is installed")
    assert "nothing is restarted" in drift.done
    node.see(model())
    assert node.kinds == ["DriftFound", "DriftEnded"]


def test_a_stranger_is_told_once_whatever_it_holds(node: Node) -> None:
    (drift,) = node.see(strangers=[OTHER])
    assert drift.what == "pid 7 (python) holds 1.0 GiB on GPU 0, and is no model of this agent"
    assert drift.done.startswith("nothing is killed")
    (drift,) = node.see(strangers=[replace(OTHER, held_bytes=2 * GIB)])
    assert (drift.model, drift.pid, drift.size_bytes) == (None, 7, 2 * GIB)
    assert node.see() == []
    assert node.kinds == ["DriftFound", "DriftEnded"]
    assert node.events[-1].reason.startswith("it has left the GPU")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "600"], env={"XGEN_NONCE": "of-somebody"})
    yield process
    process.kill()
    process.wait()


def seen(
    told: GpuFigures, *, pids: tuple[int, ...] = (), nonces: tuple[str, ...] = ()
) -> list[str]:
    families = {Nonce("n1"): pids}
    return [each.what for each in strangers(told, families, [Nonce(each) for each in nonces])]


def test_whose_a_process_is_says_its_family_and_its_nonce(
    sleeper: subprocess.Popen[bytes],
) -> None:
    told = figures((sleeper.pid, 3 * GIB))
    assert seen(told, pids=(sleeper.pid,)) == []
    assert seen(told, nonces=("of-somebody",)) == []
    (what,) = seen(told, nonces=("another",))
    assert what == (
        f"pid {sleeper.pid} (sleep, a model of another agent) holds 3.0 GiB on GPU 0 (GPU-n1), "
        "and is no model of this agent"
    )


def test_who_has_ended_or_may_be_of_another_namespace_is_nobody(
    sleeper: subprocess.Popen[bytes],
) -> None:
    assert seen(figures((sleeper.pid, GIB), own=False)) == []
    sleeper.kill()
    sleeper.wait()
    assert seen(figures((sleeper.pid, GIB))) == []
    assert seen(replace(figures(), devices=(replace(figures().devices[0], processes=None),))) == []


def test_what_is_suspended_is_not_started_again_meanwhile(node: Node) -> None:
    held = Wish(there=True, held=Reason.SUSPENDED)
    down = model(State.ERROR, reason="killed")
    node.drifts.exited(KILLED)
    (drift,) = node.see(replace(down, conditions=stamped(model_facts(down, held), (), now="t")))
    assert drift.done == "it is started again once nothing holds that back"
