"""What is told of the engine that runs, beside what is installed in its place by now."""

from dataclasses import replace

from reconciler.backend.choice import Choice
from reconciler.backend.engine_files import Stamp
from reconciler.backend.inventory import Build, Inventory, Missing
from reconciler.loop.engine_report import engine_of, engines_of, reason_of, with_drift
from reconciler.status import Engine, EngineStatus
from tests.backend.build import llama_server, xllamacpp

OLD = replace(
    llama_server(), version="1", files=(Stamp("/opt/llama.cpp/llama-server", (1, 2, 3, 4)),)
)
NEW = replace(
    OLD, version="2", detail="/new, version 2", files=(Stamp(OLD.files[0].path, (1, 5, 3, 9)),)
)


def drift(*builds: Build, missing: tuple[Missing, ...] = ()) -> EngineStatus | None:
    there = Inventory(builds=builds, missing=missing)
    return engine_of(OLD, None, there)


def test_the_same_files_are_no_drift() -> None:
    assert drift(OLD) == EngineStatus(name=None, version="1", installed="1")


def test_another_version_is_told_with_both() -> None:
    assert drift(NEW) == EngineStatus(
        name=None,
        version="1",
        installed="2",
        drift="1 runs, 2 is installed by now, and used from its next start on",
    )


def test_other_files_of_the_same_version_are_told() -> None:
    told = drift(replace(NEW, version="1"))
    assert told is not None
    assert told.drift == (
        "its files were replaced since its start, by 1 again; used from its next start on"
    )


def test_one_that_is_gone_is_told_with_the_reason() -> None:
    told = drift(
        replace(NEW, name="b2"), missing=(Missing(id=OLD.id, reason="no llama-server on PATH"),)
    )
    assert told == EngineStatus(
        name=None,
        version="1",
        drift="it runs, and could not be started again: no llama-server on PATH",
    )


def test_of_what_does_not_run_the_build_is_told_that_would() -> None:
    choice = Choice(build=NEW, reason="the first")
    assert engine_of(None, choice, Inventory(builds=(NEW,))) == EngineStatus(
        name=None, version="2", installed="2"
    )
    assert engine_of(None, None, Inventory(builds=(NEW,))) is None


def test_a_choice_holds_for_as_long_as_its_process_lives() -> None:
    choice = Choice(build=NEW, reason="the first")
    assert reason_of(OLD, choice) == reason_of(None, choice) == "the first"
    assert reason_of(xllamacpp(), choice) == (
        "xllamacpp since its start; from its next start on: the first"
    )
    assert reason_of(OLD, None) is None


def test_an_operators_mistakes_are_among_the_engines_and_what_nobody_asked_for_is_not() -> None:
    there = Inventory(
        builds=(OLD, replace(NEW, name="b2")),
        missing=(
            Missing(id="vllm-cpu", reason="no vllm on PATH"),
            Missing(id="vllm-cuda", name="v", reason="/v is not a file", wanted=True),
        ),
    )
    assert engines_of(there) == (
        Engine(id="llama-server-cpu", name=None, version="1", detail=OLD.detail),
        Engine(id="llama-server-cpu", name="b2", version="2", detail="/new, version 2"),
        Engine(id="vllm-cuda", name="v", problem="/v is not a file"),
    )


def test_what_an_earlier_agent_has_started_otherwise_is_told_beside() -> None:
    said = "an earlier agent has started it; started anew it would get --jinja"
    same, other = with_drift(drift(OLD), "--jinja"), with_drift(drift(NEW), "--jinja")
    assert same is not None
    assert same.drift == said
    assert other is not None
    assert other.drift == (
        f"1 runs, 2 is installed by now, and used from its next start on; {said}"
    )
    assert with_drift(drift(OLD), None) == drift(OLD)
    assert with_drift(None, "--jinja") is None
