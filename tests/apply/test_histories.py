"""What is known of models, on disk: whole or as it was, whatever happens while it is written."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from reconciler.apply.histories import Block, Circumstances, Histories, History
from reconciler.errors import Transient
from reconciler.own_files import FilesKept
from reconciler.plan.desired import ModelSpec, SecretRef
from reconciler.plan.durations import UNTIMED, Durations, FetchTime, LoadTime, StopTime
from reconciler.plan.ids import FilesDigest, GpuUuid, Instance, ModelName
from reconciler.plan.observed import Failure
from reconciler.plan.revert import LastGood
from reconciler.plan.spec_hash import spec_hash
from tests.waiting import wait_until

M = ModelName("llm.main-1")
SPEC = ModelSpec(
    source="gguf/a",
    digest="d1",
    extra_args={"ctx_size": 8192, "list": [1, {"x": None}]},
    env={"HF_TOKEN": SecretRef(from_env="HF_TOKEN"), "LEVEL": "1"},
)
FAILURE = Failure(
    spec_hash=spec_hash(SPEC),
    files_digest=FilesDigest("f2"),
    at=7.0,
    count=3,
    reason="exited with code 3",
    during="load",
    permanent=True,
    costly=True,
    costly_tries=2,
    exited=True,
    earlier=("killed by SIGSEGV",),
)
HISTORY = History(
    blocks=(
        Block(
            failure=FAILURE,
            circumstances=Circumstances(
                boot_id="b",
                backend="vllm-cuda",
                engine="new",
                builds=("vllm 1",),
                gpus=(("GPU-1", "H200"),),
                drivers=("driver 1 (nvml)",),
                terms="0123456789abcdef",
            ),
            at=datetime(2026, 1, 2, 3, 4, 5, 6000, tzinfo=UTC),
        ),
    ),
    loaded=(Instance(spec_hash=spec_hash(SPEC), files_digest=FilesDigest("f1")),),
    last_good=LastGood(
        spec=SPEC,
        spec_hash=spec_hash(SPEC),
        files_digest=FilesDigest("f1"),
        gpus=(GpuUuid("GPU-1"),),
    ),
    durations=Durations(
        loads=(
            LoadTime(
                backend="vllm-cuda",
                source=SPEC.source,
                file=SPEC.file,
                spec_hash=spec_hash(SPEC),
                seconds=41.5,
                after_fetch=True,
                waited_seconds=2.0,
            ),
        ),
        stops=(StopTime(drain_seconds=1.0, seconds=3.0),),
        fetches=(FetchTime(size_bytes=5, seconds=2.0),),
    ),
)
WRITER = """
import sys
from pathlib import Path
from dataclasses import replace
from reconciler.apply.histories import Histories
from tests.apply.test_histories import HISTORY, M
histories = Histories(Path(sys.argv[1]))
for number in range(10**9):
    good = replace(HISTORY.last_good, spec=replace(HISTORY.last_good.spec, file=f"{number}.gguf"))
    histories.write(M, replace(HISTORY, last_good=good))
"""


def test_what_was_written_is_read(tmp_path: Path) -> None:
    Histories(tmp_path / "history").write(M, HISTORY)
    found, problems = Histories(tmp_path / "history").read(at=7.0)
    assert (found, problems) == ({M: HISTORY}, ())
    (path,) = (tmp_path / "history").iterdir()
    assert path.stat().st_mode & 0o777 == 0o600


def test_one_of_a_release_that_timed_nothing_is_read(tmp_path: Path) -> None:
    histories = Histories(tmp_path)
    histories.write(M, HISTORY)
    path = tmp_path / f"{M}.json"
    told = json.loads(path.read_bytes())
    del told["loads"], told["stops"], told["fetches"]
    path.write_text(json.dumps(told))
    found, problems = Histories(tmp_path).read(at=7.0)
    assert (found, problems) == ({M: replace(HISTORY, durations=UNTIMED)}, ())


def test_nothing_is_there_before_the_first_write(tmp_path: Path) -> None:
    assert Histories(tmp_path / "history").read(at=0.0) == ({}, ())


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"version": 1, "mod', "truncated"),
        (b"", "truncated"),
        (b'{"version": 2}', "version 2"),
        (b'{"version": 1}', "missing required field"),
        (b"\xff\xfe", "malformed"),
        (
            b'{"version": 1, "model": "m", "blocks": [], "loaded": [], "last_good": null, '
            b'"stops": [{"drain_seconds": -1, "seconds": 0}]}',
            ">= 0",
        ),
        (b'{"version": 1, "blocks": ' + b"[" * 100_000, "recursion depth"),
    ],
)
def test_one_that_cannot_be_read_costs_no_other_and_is_kept(
    tmp_path: Path, content: bytes, why: str
) -> None:
    other = ModelName("other")
    histories = Histories(tmp_path)
    histories.write(M, HISTORY)
    histories.write(other, HISTORY)
    path = tmp_path / f"{M}.json"
    path.write_bytes(content)

    again = Histories(tmp_path)
    found, (problem,) = again.read(at=7.0)

    assert found == {other: HISTORY}
    assert str(path) in problem
    assert why in problem
    again.remove(M)
    assert path.read_bytes() == content
    again.write(M, HISTORY)
    assert (tmp_path / f"{M}.json.unread").read_bytes() == content
    assert Histories(tmp_path).read(at=7.0) == ({M: HISTORY, other: HISTORY}, ())


def test_a_named_pipe_in_its_place_is_not_waited_for(tmp_path: Path) -> None:
    histories = Histories(tmp_path)
    pipe = tmp_path / f"{M}.json"
    os.mkfifo(pipe)

    found, (problem,) = histories.read(at=7.0)
    histories.write(M, HISTORY)

    assert found == {}
    assert problem.startswith(f"cannot read {pipe}: it is no regular file but a named pipe; ")
    assert Histories(tmp_path).read(at=7.0) == ({M: HISTORY}, ())


def test_a_disk_that_takes_nothing_leaves_what_was_there(tmp_path: Path) -> None:
    histories = Histories(tmp_path / "history")
    histories.write(M, HISTORY)
    (tmp_path / "history" / f"{M}.json.partial").mkdir()  # as root nothing else is refused
    with pytest.raises(Transient, match=r"cannot write .*llm\.main-1\.json: "):
        histories.write(M, replace(HISTORY, blocks=()))
    assert Histories(tmp_path / "history").read(at=7.0)[0] == {M: HISTORY}


def test_what_is_killed_while_it_writes_leaves_the_old_or_the_new(tmp_path: Path) -> None:
    seen = set()
    for _ in range(5):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)])
        wait_until((tmp_path / f"{M}.json").exists, what="a first history")
        os.kill(writer.pid, signal.SIGKILL)
        writer.wait(10)
        found, problems = Histories(tmp_path).read(at=7.0)
        assert problems == ()
        good = found[M].last_good
        assert good is not None
        seen.add(good.spec.file)
        assert [path.name for path in tmp_path.iterdir()] == [f"{M}.json"]
    assert seen


def test_one_that_somebody_removes_or_changes_is_there_again(tmp_path: Path) -> None:
    histories = Histories(tmp_path / "history")
    path = tmp_path / "history" / f"{M}.json"
    histories.write(M, HISTORY)
    whole = path.read_bytes()
    assert histories.keep() == FilesKept()
    harms: dict[str, Callable[[], object]] = {
        "was gone": lambda: shutil.rmtree(path.parent),
        "was changed": lambda: path.write_bytes(b"{"),
        "had mode 0644": lambda: path.chmod(0o644),
    }
    for said, harm in harms.items():
        harm()
        (told,) = histories.keep().rewritten
        assert told.startswith(f"{path} {said}, and is written anew; ")
        assert path.read_bytes() == whole
        assert histories.keep() == FilesKept()

    path.touch()
    assert histories.keep() == FilesKept()
    histories.remove(M)
    assert histories.keep() == FilesKept()
    assert not path.exists()


def test_one_that_was_only_read_is_there_again_too(tmp_path: Path) -> None:
    Histories(tmp_path).write(M, HISTORY)
    again = Histories(tmp_path)
    again.read(at=7.0)
    (tmp_path / f"{M}.json").unlink()
    assert len(again.keep().rewritten) == 1
    assert Histories(tmp_path).read(at=7.0) == ({M: HISTORY}, ())


def test_what_stands_in_its_way_is_told_until_it_is_gone(tmp_path: Path) -> None:
    histories = Histories(tmp_path)
    histories.write(M, HISTORY)
    path = tmp_path / f"{M}.json"
    path.unlink()
    path.mkdir()
    for _ in range(2):
        (problem,) = histories.keep().problems
        assert "take away what stands in the way" in problem
        assert "would not know what is blocked" in problem
    path.rmdir()
    assert histories.keep().problems == ()
    assert Histories(tmp_path).read(at=7.0) == ({M: HISTORY}, ())


def remove(path: Path) -> None:
    path.unlink()


def mend(path: Path) -> None:
    Histories(path.parent.parent / "mended").write(M, HISTORY)
    (path.parent.parent / "mended" / path.name).replace(path)


@pytest.mark.parametrize("cure", [remove, mend])
def test_one_that_could_not_be_read_is_told_no_more_once_that_is_over(
    tmp_path: Path, cure: Callable[[Path], None]
) -> None:
    histories, path = unreadable(tmp_path)
    cure(path)
    assert histories.keep() == FilesKept()


def test_one_that_could_not_be_read_is_told_no_more_once_it_is_set_aside(tmp_path: Path) -> None:
    histories, path = unreadable(tmp_path)
    histories.write(M, HISTORY)
    kept = histories.keep()
    assert kept.problems == ()
    (told,) = kept.rewritten
    assert told.startswith(f"cannot read {path}: ")
    assert told.endswith(f": as {path}.unread, and {path} is written anew")
    assert histories.keep() == FilesKept()


def test_one_that_was_mended_meanwhile_is_set_aside_and_not_lost(tmp_path: Path) -> None:
    histories, path = unreadable(tmp_path)
    mend(path)
    mended = path.read_bytes()
    histories.remove(M)
    histories.write(M, replace(HISTORY, blocks=()))
    assert Path(f"{path}.unread").read_bytes() == mended


def unreadable(tmp_path: Path) -> tuple[Histories, Path]:
    """Those of an agent that cannot read one of them, and tells it."""
    path = tmp_path / "history" / f"{M}.json"
    path.parent.mkdir()
    path.write_bytes(b"{")
    histories = Histories(path.parent)
    _, problems = histories.read(at=7.0)
    for _ in range(2):
        assert histories.keep() == FilesKept(problems=problems)
    return histories, path
