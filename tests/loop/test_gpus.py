"""What the loop knows of GPUs: from surveys to claims, without asking for anything twice."""

import asyncio
import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from reconciler.apply.backends import BackendView
from reconciler.apply.gpu_numbers import GpuNumbers
from reconciler.apply.gpu_watch import GpuWatch
from reconciler.loop.gpus import GpuLedger, Gpus
from reconciler.loop.observation import Seen
from reconciler.plan.desired import Desired, DesiredModel
from reconciler.plan.gpu_survey import Answer, Cause, Step
from reconciler.plan.gpus import GpuProcess
from reconciler.plan.ids import GpuUuid, Instance, ModelName, NodeName
from tests.backend.build import model
from tests.loop.book_entries import view
from tests.plan.gpu import answers, nvidia

GIB = 2**30
NOTHING = Seen(views={}, in_flight={}, leftovers=())
Survey = tuple[Answer, ...]


class Machine:
    """What the surveys say, one after another; the last one again and again."""

    def __init__(self, *surveys: list[Answer]) -> None:
        self._surveys = list(map(tuple, surveys))
        self.asked = 0
        self.now = 0.0
        self._awake = asyncio.Event()
        self.watch = GpuWatch(
            self._survey, clock=lambda: self.now, wake=self._awake.set, rest_seconds=0.0
        )
        self.hopeless: set[str] = set()
        self.builds = ["some"]
        self.ledger = GpuLedger(
            self.watch,
            {},
            lambda model, devices: model.name not in self.hopeless,
            builds=lambda: self.builds,
        )

    def _survey(self) -> Survey:
        self.asked += 1
        return self._surveys.pop(0) if len(self._surveys) > 1 else self._surveys[0]

    async def asks(self) -> None:
        """Wait for the end of a survey."""
        async with asyncio.timeout(30):
            await self._awake.wait()
        self._awake.clear()

    def looks(self, *models: DesiredModel, views: tuple[BackendView, ...] = ()) -> Gpus:
        desired = Desired(node=NodeName("n"), revision="r", models=models)
        seen = replace(NOTHING, views={each.model: (each,) for each in views})
        families = {each.nonce: (each.pid,) for each in views}
        return self.ledger.look(desired, seen, families)


def given(gpus: Gpus) -> dict[str, list[str]]:
    assert gpus.desired is not None
    return {each.name: list(each.gpus) for each in gpus.desired.models}


def figures(used: int, **more: Any) -> list[Answer]:
    return answers(
        *(
            nvidia(bus, memory_total_bytes=80 * GIB, memory_used_bytes=used, **more)
            for bus in (1, 2)
        )
    )


def running(*gpus: str, pid: int = 7) -> BackendView:
    spec_hash, digest = model().spec_hash, view().instance.files_digest
    return replace(
        view(),
        model=ModelName("gemma"),
        pid=pid,
        instance=Instance(spec_hash=spec_hash, files_digest=digest),
        gpus=tuple(map(GpuUuid, gpus)),
        started_at=1.0,
    )


async def test_nothing_is_known_before_the_first_survey_and_everything_after_it() -> None:
    machine = Machine(figures(0))
    before = machine.looks(model())
    async with machine.watch.asking():
        await machine.asks()
    after = machine.looks(model())

    assert (before.roll, given(before)) == (None, {"gemma": []})
    assert before.claims[ModelName("gemma")].unknown is not None
    assert given(after) == {"gemma": ["GPU-n1"]}


async def test_figures_that_move_change_neither_what_is_given_nor_how_it_is_started() -> None:
    machine = Machine(figures(1), figures(2))
    async with machine.watch.asking():
        await machine.asks()
        first = machine.looks(model())
        machine.watch.hurry()
        await machine.asks()
        second = machine.looks(model())

    assert first.roll is not None
    assert second.roll is not None
    assert first.roll.devices != second.roll.devices
    assert second.desired is first.desired
    assert second.claims is first.claims
    assert machine.looks(model()) is second


async def test_what_nothing_here_can_run_keeps_no_gpu_from_others() -> None:
    machine = Machine(figures(1))
    machine.hopeless = {"a", "named"}
    models = (
        model("a"),
        model("b"),
        model("c"),
        model("named", gpu_ids=("1",)),
    )
    async with machine.watch.asking():
        await machine.asks()

    assert given(machine.looks(*models)) == {
        "a": ["GPU-n1"],
        "b": ["GPU-n1"],
        "c": ["GPU-n2"],
        "named": ["GPU-n2"],
    }


async def test_other_engines_may_run_what_none_could() -> None:
    machine = Machine(figures(1))
    machine.hopeless = {"a"}
    models = (model("a", gpus=2), model("b", gpus=2))
    async with machine.watch.asking():
        await machine.asks()
        first = machine.looks(*models)
        assert given(first)["b"] == ["GPU-n1", "GPU-n2"]
        machine.hopeless = set()
        machine.builds = ["another"]

        assert given(machine.looks(*models)) == {"a": ["GPU-n1", "GPU-n2"], "b": []}


async def test_a_survey_that_says_the_same_is_no_news() -> None:
    machine = Machine(figures(1))
    async with machine.watch.asking():
        await machine.asks()
        first = machine.looks(model())
        machine.watch.hurry()
        await machine.asks()

        assert machine.looks(model()) is first


async def test_processes_that_come_and_go_are_a_reason_to_ask() -> None:
    machine = Machine(figures(1))
    async with machine.watch.asking():
        await machine.asks()
        machine.looks(model(), views=(running("GPU-n1"),))
        await machine.asks()
        machine.looks(model())
        await machine.asks()

    assert machine.asked == 3


async def test_a_process_is_judged_by_a_survey_that_it_lived_through() -> None:
    ours = os.getpid()
    on_second = [*figures(1, processes=(GpuProcess(pid=ours, memory_bytes=GIB),))]
    machine = Machine(on_second)
    here = running("GPU-n1", pid=ours)
    async with machine.watch.asking():
        await machine.asks()
        too_young = machine.looks(model(), views=(here,))
        machine.now = 5.0
        await machine.asks()
        judged = machine.looks(model(), views=(here,))

    assert too_young.misplaced == {}
    assert judged.misplaced == {
        here.nonce: f"pid {ours} is on GPU 1 (GPU-n2), and was given GPU 0 (GPU-n1)"
    }


async def test_without_gpus_nobody_is_asked_again_soon() -> None:
    none = [Answer(step=Step.NVML, reason="no library", cause=Cause.ABSENT)]
    machine = Machine(none)
    async with machine.watch.asking():
        await machine.asks()
        machine.watch.hurry()
        gpus = machine.looks(model(), views=(running(),))

    assert machine.asked == 1
    assert given(gpus) == {"gemma": []}


async def test_an_end_waits_for_no_library_that_hangs() -> None:
    hanging, released = threading.Event(), threading.Event()

    def hangs() -> Survey:
        hanging.set()
        released.wait(60)
        return ()

    watch = GpuWatch(hangs, clock=lambda: 0.0, wake=lambda: None)
    async with watch.asking():
        await asyncio.to_thread(hanging.wait, 30)
    released.set()

    assert watch.surveyed is None or watch.surveyed.answers == ()


async def test_who_could_not_start_on_a_gpu_leaves_it_to_others_until_it_could() -> None:
    machine = Machine(figures(1))
    models = (model("a", gpus=2), model("b", gpus=2), model("c", gpus=2))
    async with machine.watch.asking():
        await machine.asks()
        both = ["GPU-n1", "GPU-n2"]
        assert given(machine.looks(*models)) == {"a": both, "b": [], "c": []}

        assert machine.ledger.learn({ModelName("a")})
        assert given(machine.looks(*models)) == {"a": both, "b": both, "c": []}
        assert machine.ledger.learn({ModelName("a"), ModelName("b")})
        assert given(machine.looks(*models)) == {"a": both, "b": both, "c": both}
        assert not machine.ledger.learn({ModelName("a"), ModelName("b")})
        assert given(machine.looks(*models)) == {"a": both, "b": both, "c": both}

        runs = replace(running(*both), model=ModelName("c"))
        machine.looks(*models, views=(runs,))
        machine.ledger.learn(())
        assert given(machine.looks(*models, views=(runs,))) == {"a": [], "b": [], "c": both}


async def test_what_ran_keeps_its_gpu_over_a_crash_until_it_could_not_start() -> None:
    machine = Machine(figures(1))
    models = (model("a", gpus=2), model("z", gpus=2))
    both = ["GPU-n1", "GPU-n2"]
    runs = replace(running(*both), model=ModelName("z"))
    async with machine.watch.asking():
        await machine.asks()
        assert given(machine.looks(*models, views=(runs,))) == {"a": [], "z": both}

        for _ in range(3):
            assert given(machine.looks(*models)) == {"a": [], "z": both}
        assert machine.ledger.learn({ModelName("z")})
        assert given(machine.looks(*models))["a"] == both
        machine.ledger.learn(())
        assert given(machine.looks(*models)) == {"a": both, "z": []}


async def test_numbers_are_kept_once_and_tried_again_where_the_disk_refuses(tmp_path: Path) -> None:
    machine = Machine(figures(0))
    path = tmp_path / "data" / "gpus.json"
    machine.ledger = GpuLedger(
        machine.watch, {}, lambda model, devices: True, numbers=GpuNumbers(path)
    )
    await machine.ledger.keep()
    async with machine.watch.asking():
        await machine.asks()
    machine.looks(model())

    await machine.ledger.keep()
    (problem,) = machine.ledger.problems
    path.parent.mkdir()
    await machine.ledger.keep()
    written = path.stat()
    await machine.ledger.keep()

    assert "cannot write" in problem
    assert machine.ledger.problems == ()
    assert path.stat() == written
    kept = GpuNumbers(path).roll
    assert kept is not None
    assert [each.identity for each in kept.devices] == ["GPU-n1", "GPU-n2"]
