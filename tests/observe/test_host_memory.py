"""The machine's memory, in real folder trees, and what a real process holds of it."""

import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.observe.host_memory import held_by, read_physical, read_room
from reconciler.plan.memory import Room

KIB = 1024
GIB = 1024**3
MEMINFO = """\
MemTotal:       16777216 kB
MemFree:         1048576 kB
MemAvailable:    8388608 kB
SwapTotal:             0 kB
SwapFree:              0 kB
HugePages_Total:       0
"""


def machine(folder: Path, cgroup: str = "", meminfo: str = MEMINFO, **groups: str) -> None:
    """`groups`: by folder below the mount (`__` for `/`), `file=text` separated by blanks."""
    (folder / "proc/self").mkdir(parents=True)
    (folder / "proc/meminfo").write_text(meminfo, encoding="utf-8")
    (folder / "proc/self/cgroup").write_text(cgroup, encoding="utf-8")
    for name, content in groups.items():
        group = folder / "cgroup" / name.replace("__", "/")
        group.mkdir(parents=True, exist_ok=True)
        for entry in content.split():
            file, _, text = entry.partition("=")
            (group / file).write_text(text.replace("_of_", " ") + "\n", encoding="utf-8")


def room(folder: Path) -> Room | None:
    return read_room(folder / "proc", folder / "cgroup")


def test_without_a_cgroup_it_is_what_the_kernel_calls_available(tmp_path: Path) -> None:
    machine(tmp_path)

    assert room(tmp_path) == Room(total_bytes=16 * GIB, free_bytes=8 * GIB)
    assert read_physical(tmp_path / "proc") == 16 * GIB


def test_swap_counts(tmp_path: Path) -> None:
    meminfo = MEMINFO.replace("SwapTotal:             0", "SwapTotal: 4194304")
    machine(tmp_path, meminfo=meminfo.replace("SwapFree:              0", "SwapFree: 2097152"))

    assert room(tmp_path) == Room(total_bytes=20 * GIB, free_bytes=10 * GIB)


def test_a_container_bounds_it_and_pages_of_files_in_it_are_free(tmp_path: Path) -> None:
    """Version 2, with a namespace of its own: the container's cgroup is the mount itself."""
    machine(tmp_path, "0::/\n")
    stat = "".join(
        f"{name} {size}\n"
        for name, size in (
            ("anon", 2 * GIB),
            ("inactive_file", GIB),
            ("active_file", GIB // 2),
            ("slab_reclaimable", GIB // 2),
        )
    )
    for file, text in (
        ("memory.max", str(6 * GIB)),
        ("memory.current", str(5 * GIB)),
        ("memory.stat", stat),
    ):
        (tmp_path / "cgroup").mkdir(exist_ok=True)
        (tmp_path / "cgroup" / file).write_text(text, encoding="utf-8")

    assert room(tmp_path) == Room(total_bytes=6 * GIB, free_bytes=3 * GIB)


def test_the_narrowest_of_the_cgroups_above_us_counts(tmp_path: Path) -> None:
    machine(
        tmp_path,
        "0::/a/b\n",
        a=f"memory.max={4 * GIB} memory.current={3 * GIB}",
        a__b=f"memory.max=max memory.current={GIB}",
    )

    assert room(tmp_path) == Room(total_bytes=4 * GIB, free_bytes=GIB)


def test_version_1_and_a_path_of_the_machine_that_a_container_does_not_see(tmp_path: Path) -> None:
    machine(
        tmp_path,
        "4:memory:/docker/abc\n3:cpuset:/\n0::/\n",
        memory=f"memory.limit_in_bytes={4 * GIB} memory.usage_in_bytes={3 * GIB} "
        f"memory.stat=total_inactive_file_of_{GIB}",
    )

    assert room(tmp_path) == Room(total_bytes=4 * GIB, free_bytes=2 * GIB)


@pytest.mark.parametrize("limit", ["9223372036854771712", "max"])
def test_a_limit_that_is_none(tmp_path: Path, limit: str) -> None:
    machine(
        tmp_path,
        "4,5:memory,cpu:/\n",
        memory=f"memory.limit_in_bytes={limit} memory.usage_in_bytes={15 * GIB}",
    )

    assert room(tmp_path) == Room(total_bytes=16 * GIB, free_bytes=8 * GIB)


def test_what_the_kernel_does_not_tell_is_not_known(tmp_path: Path) -> None:
    machine(tmp_path, meminfo="MemTotal: 16777216 kB\n")

    assert room(tmp_path) is None


def test_this_machine_has_memory() -> None:
    here = read_room()

    assert here is not None
    assert 0 < here.free_bytes <= here.total_bytes


def test_a_process_holds_its_own_memory_until_it_is_gone() -> None:
    """Scenario 19 (gpustack#1354): nothing is counted of what has ended."""
    program = "data = bytearray(64 << 20); data[::4096] = b'x' * (64 << 8); print(); input()"
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        held = held_by([child.pid])
        child.communicate("\n")

    assert 64 << 20 <= held < 256 << 20
    assert held_by([child.pid]) == 0
