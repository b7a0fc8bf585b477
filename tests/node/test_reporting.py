"""What a service manager hears of an agent, by a clock that is moved and a real socket."""

import asyncio
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from reconciler.node.reporting import Reporting, told_of
from reconciler.node.service_manager import ServiceManager
from reconciler.plan.desired import ModelType
from reconciler.plan.ids import ModelName, NodeName
from reconciler.plan.phase import State
from reconciler.pulse import Beat
from reconciler.status import ModelDetail, ModelStatus, Revision, Status
from tests.service_socket import service_socket

STARTING = Beat(now="t0", as_of=None, age_seconds=0.0)
ALIVE = replace(STARTING, as_of="t1")
SILENT = replace(ALIVE, silent_since="t61")


def of(name: str, state: State, *, enabled: bool = True) -> ModelStatus:
    return ModelStatus(
        name=ModelName(name),
        type=ModelType.LLM,
        state=state,
        reason="",
        detail=ModelDetail(enabled=enabled),
    )


def status(*models: ModelStatus, applied: str | None = "0123456789abcdef") -> Status:
    return Status(node=NodeName("a"), models=models, revision=Revision(applied=applied))


@dataclass
class Seen:
    of_loop: Beat = STARTING
    of_models: Status = field(default_factory=status)
    listens: bool = True
    fault: Exception | None = None

    def beat(self) -> Beat:
        return self.of_loop

    def status(self) -> Status:
        if self.fault is not None:
            raise self.fault
        return self.of_models

    def answers(self) -> bool:
        return self.listens


class Told:
    """The news, without the lines of status."""

    def __init__(self, *, watchdog_seconds: float | None = 20.0) -> None:
        self.agent, self.ending, self.time = Seen(), asyncio.Event(), 0.0
        manager = ServiceManager("/nowhere", watchdog_seconds=watchdog_seconds)
        self._reporting = Reporting(manager, self.agent, ending=self.ending, now=lambda: self.time)

    async def run(self) -> None:
        await self._reporting.run()

    def news(self, *, after: float = 0.0) -> list[str]:
        self.time += after
        return [line for line in self._reporting.news() if not line.startswith("STATUS=")]


def test_it_is_ready_once_after_a_whole_tick_and_when_it_listens() -> None:
    told = Told(watchdog_seconds=None)
    assert told.news() == []
    told.agent.of_loop, told.agent.listens = ALIVE, False
    assert told.news() == []
    told.agent.listens = True
    assert told.news() == ["READY=1"]
    assert told.news() == []


def test_the_watchdog_is_fed_at_half_its_time_and_not_for_a_silent_loop() -> None:
    told = Told()
    told.agent.of_loop = ALIVE
    assert told.news() == ["READY=1", "WATCHDOG=1"]
    assert told.news(after=9.0) == []
    assert told.news(after=1.0) == ["WATCHDOG=1"]
    told.agent.of_loop = SILENT
    assert told.news(after=60.0) == []
    told.agent.of_loop = ALIVE
    assert told.news() == ["WATCHDOG=1"]


def test_the_end_is_told_once_and_lengthened_while_the_loop_goes_round() -> None:
    told = Told(watchdog_seconds=None)
    told.agent.of_loop = ALIVE
    told.news()
    told.ending.set()
    assert told.news() == ["STOPPING=1", "EXTEND_TIMEOUT_USEC=30000000"]
    assert told.news(after=9.0) == []
    assert told.news(after=1.0) == ["EXTEND_TIMEOUT_USEC=30000000"]
    told.agent.of_loop = SILENT
    assert told.news(after=60.0) == []


@pytest.mark.parametrize(
    ("said", "models", "beat"),
    [
        ("starting: looking for the backends that are there", [], STARTING),
        ("the loop has ended no tick since t1", [], SILENT),
        ("revision 0123456789ab, 0 of 0 models loaded", [], ALIVE),
        (
            "revision 0123456789ab, 1 of 2 models loaded, b error",
            [of("a", State.LOADED), of("b", State.ERROR), of("c", State.DISABLED, enabled=False)],
            ALIVE,
        ),
        (
            "revision 0123456789ab, 0 of 5 models loaded, a pending, b pending, c pending, "
            "and 2 more",
            [of(name, State.PENDING) for name in "abcde"],
            ALIVE,
        ),
    ],
)
def test_the_status_is_one_line(said: str, models: list[ModelStatus], beat: Beat) -> None:
    assert told_of(status(*models), beat) == said


def test_what_is_told_of_an_end_and_of_no_revision() -> None:
    shown = replace(status(applied=None), draining=True)
    assert told_of(shown, ALIVE) == "ending: no revision applied yet, 0 of 0 models loaded"


@pytest.mark.parametrize(
    ("watchdog", "beat", "fate"),
    [
        (None, ALIVE, "which goes on"),
        (20.0, ALIVE, "which goes on until the watchdog ends it, in 20 s or less"),
        (20.0, STARTING, "which goes on until the time for its start is over"),
    ],
)
async def test_a_fault_of_ours_is_logged_at_once_and_with_what_follows(
    watchdog: float | None, beat: Beat, fate: str
) -> None:
    told = Told(watchdog_seconds=watchdog)
    told.agent.of_loop = beat
    told.news()
    told.agent.fault = ValueError("no status")
    with capture_logs() as logs:
        await told.run()
    (line,) = logs
    assert line["event"] == f"the service manager hears nothing more of this agent, {fate}"
    assert (line["log_level"], line["exc_info"]) == ("error", True)


@pytest.mark.parametrize("abstract", [False, True])
def test_a_message_arrives_whole_and_no_child_learns_where(tmp_path: Path, abstract: bool) -> None:
    with service_socket(tmp_path, abstract=abstract) as systemd:
        environment = {
            **systemd.environment,
            "WATCHDOG_USEC": "3000000",
            "WATCHDOG_PID": "7",
            "A": "b",
        }
        manager = ServiceManager.taken_from(environment, watched=7)
        assert manager is not None
        assert (environment, manager.watchdog_seconds) == ({"A": "b"}, 3.0)
        manager.tell("READY=1", "STATUS=one")
        assert systemd.read() == ["READY=1", "STATUS=one"]
    manager.tell("WATCHDOG=1")  # nobody is there any more


@pytest.mark.parametrize(
    ("environment", "watchdog"),
    [
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "8"}, None),
        ({"WATCHDOG_USEC": "3000000"}, 3.0),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "\N{SUPERSCRIPT TWO}"}, None),
        ({"WATCHDOG_USEC": "\N{ARABIC-INDIC DIGIT TWO}"}, None),
        ({}, None),
    ],
)
def test_a_watchdog_of_another_process_is_not_fed(
    environment: dict[str, str], watchdog: float | None
) -> None:
    manager = ServiceManager.taken_from({"NOTIFY_SOCKET": "/a", **environment}, watched=7)
    assert manager is not None
    assert manager.watchdog_seconds == watchdog


@pytest.mark.parametrize("address", ["", "vsock:2:1", "relative"])
def test_no_local_socket_is_nobody(address: str) -> None:
    environment = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "3000000"}
    assert ServiceManager.taken_from(environment, watched=7) is None
    assert environment == {}
