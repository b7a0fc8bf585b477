"""What the spawns of a model print is read as one text, and who speaks is clear."""

from pathlib import Path

from reconciler.apply.logs import log_path, write_end
from reconciler.apply.model_log import Logs, ModelLog
from reconciler.apply.spawn_logs import KEPT, logs_of, model_of, next_log, prune
from reconciler.plan.ids import ModelName

M = ModelName("org/chat.log")


def spawn(folder: Path, text: str = "", model: ModelName = M) -> Path:
    path = next_log(folder, model)
    path.write_text(f"[xgen-model] starting {path.name}\n{text}")
    return path


def append(path: Path, text: str) -> None:
    with path.open("a") as log:
        log.write(text)


def reader(folder: Path) -> ModelLog:
    return Logs(folder, lambda: ("secret",)).open(M)


async def test_a_model_that_has_not_started_has_an_empty_log(tmp_path: Path) -> None:
    assert await reader(tmp_path).last(10) == b""
    assert await reader(tmp_path).more() == b""


async def test_the_last_lines_are_the_newest_spawns_and_before_them_the_older_ones(
    tmp_path: Path,
) -> None:
    log_path(tmp_path, M).write_text("of the release before\nsecret\n")
    spawn(tmp_path, "one\n")
    for _ in range(9):
        spawn(tmp_path)
    spawn(tmp_path, "two\nthree\n")

    assert await reader(tmp_path).last(2) == b"two\nthree\n"
    whole = (await reader(tmp_path).last(100)).decode().splitlines()

    assert whole[:2] == ["of the release before", "***"]
    assert whole[3:5] == ["one", "[xgen-model] starting org%2Fchat.log@2.log"]
    assert whole[-3:] == ["[xgen-model] starting org%2Fchat.log@11.log", "two", "three"]


async def test_who_follows_goes_on_with_the_next_spawn_and_is_told_when_an_older_one_speaks(
    tmp_path: Path,
) -> None:
    old = spawn(tmp_path, "one\n")
    log = reader(tmp_path)
    await log.last(0)
    append(old, "two\n")
    assert await log.more() == b"two\n"

    new = spawn(tmp_path, "loading\n")
    assert await log.more() == b"[xgen-model] starting org%2Fchat.log@2.log\nloading\n"
    append(old, "three\n")
    assert await log.more() == b"[xgen-model] org%2Fchat.log@1.log goes on:\nthree\n"
    append(old, "four\n")
    append(new, "loaded\n")
    assert (await log.more()).decode().splitlines() == [
        "four",
        "[xgen-model] org%2Fchat.log@2.log goes on:",
        "loaded",
    ]
    old.unlink()
    assert await log.more() == b""


async def test_the_end_is_noted_on_a_line_of_its_own(tmp_path: Path) -> None:
    path = spawn(tmp_path, "Segmentation fault")
    write_end(path, "pid 7 of chat: killed by SIGSEGV")
    *_, last, end = (await reader(tmp_path).last(9)).decode().splitlines()
    assert last == "Segmentation fault"
    assert end.startswith("[xgen-model] ")
    assert end.endswith(" pid 7 of chat: killed by SIGSEGV")


def test_logs_of_spawns_that_have_ended_are_few(tmp_path: Path) -> None:
    used = spawn(tmp_path)
    other = spawn(tmp_path, model=ModelName("other"))
    for _ in range(KEPT + 3):
        spawn(tmp_path)
    prune(tmp_path, M, {str(used)}, 10_000)
    left = logs_of(tmp_path, M)
    assert [path.stem.rpartition("@")[2] for path in left] == ["1", *map(str, range(5, 13))]
    assert other.exists()
    assert next_log(tmp_path, M).stem.endswith("@13")


def test_the_log_of_one_that_lives_is_nobody_elses_though_it_was_removed(tmp_path: Path) -> None:
    first = next_log(tmp_path, M)
    assert next_log(tmp_path, M, {str(first)}) != first


def test_logs_of_spawns_that_have_ended_are_small_and_the_newest_one_stays(tmp_path: Path) -> None:
    shared = log_path(tmp_path, M)
    shared.write_text("x" * 100)
    older = spawn(tmp_path, "x" * 100)
    aside = older.with_name(f"{older.name}.1")
    aside.write_text("x" * 1000)
    newest = spawn(tmp_path, "x" * 2000)
    prune(tmp_path, M, (), 1200)
    assert logs_of(tmp_path, M) == (newest,)
    assert not aside.exists()


def test_a_log_is_of_the_model_whose_name_it_bears(tmp_path: Path) -> None:
    for name in ("chat", "chat@1", "chat@1.log"):
        spawn(tmp_path, model=ModelName(name))
    assert [path.name for path in logs_of(tmp_path, ModelName("chat"))] == ["chat@1.log"]
    (path,) = logs_of(tmp_path, ModelName("chat@1"))
    assert model_of(path) == "chat%401"
