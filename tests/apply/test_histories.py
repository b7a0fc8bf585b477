"""What is known of models, on disk: whole or as it was, whatever happens while it is written."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from reconciler.apply.histories import Block, Circumstances, Histories, History
from reconciler.errors import Transient
from reconciler.plan.desired import ModelSpec, SecretRef
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
