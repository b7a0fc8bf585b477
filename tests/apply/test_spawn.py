import asyncio
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.backend.environment import NONCE_VARIABLE
from reconciler.errors import Bug, Rejected, Transient
from reconciler.observe.processes import environment_value, read_process
from reconciler.plan.desired import SecretRef
from reconciler.plan.ids import ModelName
from tests.apply.world import KEY, PORTS, SLEEP, SPEC, World, instance


def open_files(pid: int) -> dict[int, str]:
    return {int(fd.name): str(fd.readlink()) for fd in Path(f"/proc/{pid}/fd").iterdir()}


async def test_a_backend_leads_its_own_session_and_carries_its_nonce(world: World) -> None:
    view = await world.spawn(argv=SLEEP)

    process = read_process(view.pid)
    assert process is not None
    assert process.session == process.group == view.pid
    assert environment_value(view.pid, NONCE_VARIABLE) == view.nonce
    await world.stop(view)


async def test_a_backend_inherits_no_file_but_its_log(world: World) -> None:
    """A pipe would block it once nobody reads; a socket of ours would outlive us in it."""
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)

    view = await world.spawn(argv=SLEEP)

    log = str(view.log_path)
    assert open_files(view.pid) == {0: "/dev/null", 1: log, 2: log}
    os.close(reader)
    os.close(writer)
    await world.stop(view)


async def test_the_record_names_the_process_for_ever(world: World) -> None:
    view = await world.spawn(argv=SLEEP)

    (record,) = (json.loads(path.read_text()) for path in world.records())
    process = read_process(view.pid)
    assert process is not None
    assert (record["pid"], record["session"]) == (view.pid, view.pid)
    assert record["start_ticks"] == process.start_ticks >= record["written_ticks"]
    assert (record["port"], record["nonce"]) == (view.launch.port, view.nonce)
    await world.stop(view)


async def test_the_key_stands_in_no_log_and_no_recorded_command(world: World) -> None:
    view = await world.spawn(argv=("sh", "-c", "sleep 3600 # $0", f"--api-key={KEY}"))

    (record,) = (json.loads(path.read_text()) for path in world.records())
    assert record["argv"][-1] == "--api-key=***"
    log = view.log_path.read_text()
    assert "--api-key=***" in log
    assert f"pid {view.pid}" in log
    assert KEY not in log
    await world.stop(view)


@pytest.mark.parametrize(
    ("program", "cause"),
    [("missing", "no such file or directory"), ("plain-file", "permission denied")],
)
async def test_a_command_that_cannot_run_is_rejected_and_leaves_no_record(
    world: World, tmp_path: Path, program: str, cause: str
) -> None:
    path = tmp_path / program
    (tmp_path / "plain-file").write_text("")

    with pytest.raises(Rejected, match=f"cannot start x: {path}: {cause}"):
        await world.spawn(argv=(str(path),))

    assert world.records() == []
    assert world.backends.live() == ()


async def test_a_record_that_cannot_be_written_starts_nothing(world: World) -> None:
    folder = world.data_dir / "spawns"
    folder.rmdir()
    folder.write_text("somebody's file")

    said = f"cannot start x: cannot write .*; take away what stands in the way at {folder}"
    with pytest.raises(Transient, match=said):
        await world.spawn(argv=SLEEP)

    assert world.processes() == []


async def test_a_full_disk_says_where_room_is_needed(world: World, full_disk: Path) -> None:
    said = f"cannot write its record: no space left on device; free some in {full_disk}"
    with pytest.raises(Transient, match=said):
        await world.spawn(argv=SLEEP)

    assert [path.name for path in world.records()] == ["somebody-else"]
    assert world.processes() == []


async def test_folders_that_somebody_deleted_are_made_again(world: World) -> None:
    shutil.rmtree(world.data_dir)

    view = await world.spawn(argv=SLEEP)

    assert len(world.records()) == 1
    assert view.log_path.exists()
    await world.stop(view)


async def test_a_failed_spawn_gives_its_port_back(world: World) -> None:
    for _ in range(len(PORTS) + 1):
        with pytest.raises(Rejected):
            await world.spawn(argv=("/missing",))


async def test_a_spawn_that_is_cancelled_is_live_all_the_same(world: World) -> None:
    spawning = asyncio.create_task(world.spawn(argv=SLEEP))
    await world.until(lambda: world.records() != [], "it has begun")

    spawning.cancel()
    await asyncio.gather(spawning, return_exceptions=True)

    (view,) = world.backends.live()
    await world.stop(view)
    assert world.processes() == []


async def test_a_name_with_a_slash_makes_no_folder(world: World) -> None:
    view = await world.spawn(argv=SLEEP, name="org/../model")

    assert view.log_path.parent == world.data_dir / "logs"
    await world.stop(view)


async def test_spawning_before_the_first_look_is_a_bug(world: World) -> None:
    early = world.make_backends()

    with pytest.raises(Bug, match="not open"):
        await early.spawn(
            model=ModelName("x"), spec=SPEC, instance=instance(), gpus=(), launch=world.launch()
        )


async def test_progress_says_what_is_missing_until_it_serves(world: World) -> None:
    """Scenario 10: llama-swap#558: "starting" for ever though it is loaded."""
    view = await world.spawn("--ready-after", "1")
    await world.until(
        lambda: world.view(view).progress == "health: 503 Loading model", "it says that it loads"
    )

    await world.until(lambda: world.view(view).loaded_at is not None, "it is loaded")

    assert world.view(view).progress == ""
    await world.stop(view)


async def test_progress_says_that_only_the_first_answer_is_missing(world: World) -> None:
    """Its port is open, and its health page is well."""
    view = await world.spawn("--first-byte-after", "600")

    await world.until(
        lambda: world.view(view).progress == "first answer: nothing came yet", "what is missing"
    )

    await world.stop(view)


async def test_a_backend_whose_port_somebody_else_answers_is_not_loaded(world: World) -> None:
    """Scenarios 23 and 24: gpustack#3086, #3548: somebody else answers on its port."""
    first = await world.spawn_loaded()
    port = first.launch.port
    second = await world.backends.spawn(
        model=ModelName("y"),
        spec=SPEC,
        instance=instance(),
        gpus=(),
        launch=world.launch(argv=SLEEP, name="y", port=port),
    )
    world.sessions.add(second.pid)

    await world.until(lambda: f"port {port}" in world.view(second).progress, "it says who answers")

    assert world.view(second).progress == (
        f"another server seems to answer on port {port}: it serves x, not y"
    )
    await world.stop(first)
    await world.stop(second)


async def test_no_value_of_a_secret_stands_in_a_record(world: World) -> None:
    """Neither of what a manifest refers to, nor of a variable that is named as a secret."""
    secrets = {"OTHER": "value-of-a-reference", "A_TOKEN": "value-of-a-token"}
    made = world.launch(argv=("sh", "-c", "sleep 3600 # $0", *secrets.values()))
    view = await world.backends.spawn(
        model=ModelName("x"),
        spec=replace(SPEC, env={"OTHER": SecretRef(from_env="SOURCE")}),
        instance=instance(),
        gpus=(),
        launch=replace(made, env={**made.env, **secrets}),
    )
    world.sessions.add(view.pid)
    (path,) = world.records()

    text = path.read_text()

    assert not any(value in text for value in secrets.values())
    record = json.loads(text)
    assert record["spec"]["env"] == {"OTHER": {"from_env": "SOURCE", "from_file": None}}
    assert record["argv"][-2:] == ["***", "***"]
    await world.stop(view)
