"""AMD's GPUs by the kernel's own files, in a tree of real files and links."""

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.observe.devices.amd_sysfs import ask_sysfs
from reconciler.plan.gpu_survey import Cause
from reconciler.plan.gpus import GpuProcess

GIB = 2**30
_MI210 = {
    "simd_count": 416,
    "gfx_target_version": 90010,
    "location_id": 25344,
    "domain": 0,
    "drm_render_minor": 128,
    "unique_id": 1801979520617338022,
}
_STRIX_HALO = {
    "simd_count": 80,
    "gfx_target_version": 110501,
    "location_id": 50432,
    "drm_render_minor": 129,
    "unique_id": 0,
}


class Tree:
    """A machine's /sys and /dev."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.kfd = root / "sys/class/kfd/kfd"
        self._write("dev/kfd", "")
        self.node(0, {"cpu_cores_count": 64, "simd_count": 0, "gfx_target_version": 0})

    def node(self, number: int, properties: dict[str, int]) -> None:
        lines = "".join(f"{key} {value}\n" for key, value in properties.items())
        self._write(f"sys/class/kfd/kfd/topology/nodes/{number}/properties", lines)
        self._write(f"sys/class/kfd/kfd/topology/nodes/{number}/gpu_id", f"{1000 + number}\n")

    def card(self, minor: int, address: str, **files: object) -> None:
        device = self.root / "sys/devices/pci0000:00" / address
        for name, value in files.items():
            self._write(str(device.relative_to(self.root) / name), f"{value}\n")
        link = self.root / f"sys/class/drm/renderD{minor}/device"
        link.parent.mkdir(parents=True)
        link.symlink_to(device)
        self._write(f"dev/dri/renderD{minor}", "")

    def process(self, pid: int, **files: object) -> None:
        for name, value in files.items():
            self._write(f"sys/class/kfd/kfd/proc/{pid}/{name}", f"{value}\n")

    def _write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o666)


@pytest.fixture
def tree() -> Iterator[Tree]:
    """An accelerator and an APU. Outside tmp_path, which others than its owner cannot enter."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        tree = Tree(Path(folder))
        tree.node(1, _MI210)
        tree.node(2, _STRIX_HALO)
        tree.card(
            128,
            "0000:63:00.0",
            mem_info_vram_total=64 * GIB,
            mem_info_vram_used=GIB,
            mem_info_gtt_total=500 * GIB,
            gpu_busy_percent=7,
            product_name="AMD Instinct MI210",
        )
        tree.card(129, "0000:c5:00.0", mem_info_vram_total=GIB, mem_info_gtt_total=64 * GIB)
        yield tree


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Without root's right to open everything."""
    before = os.geteuid()
    if before == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(before)


def test_what_can_compute_is_told_in_the_kernels_order(tree: Tree) -> None:
    tree.process(70, vram_1001=4096, vram_1002=0)
    tree.process(71, vram_1002=1)

    told = ask_sysfs(tree.root)

    big, apu = told.devices
    assert (big.uuid, big.pci, big.order) == ("GPU-1901ead3a2ecd4a6", "0000:63:00.0", 0)
    assert (big.architecture, big.name) == ("gfx90a", "AMD Instinct MI210")
    assert (big.memory_total_bytes, big.memory_free_bytes) == (64 * GIB, 63 * GIB)
    assert (big.utilization, big.unified) == (7, False)
    assert big.processes == (GpuProcess(pid=70, memory_bytes=4096),)
    assert (apu.uuid, apu.pci, apu.order) == (None, "0000:c5:00.0", 1)
    assert (apu.architecture, apu.unified, apu.utilization) == ("gfx1151", True, None)
    assert (apu.memory_total_bytes, apu.memory_used_bytes) == (64 * GIB, None)
    assert apu.processes == (GpuProcess(pid=71, memory_bytes=1),)


def test_partitions_of_one_gpu_are_told_apart(tree: Tree) -> None:
    tree.node(1, _MI210 | {"location_id": 25344 + (1 << 28)})

    assert ask_sysfs(tree.root).devices[0].pci == "0000:63:00.1"


def test_a_machine_without_the_driver_or_without_a_gpu_says_so(tmp_path: Path) -> None:
    assert ask_sysfs(tmp_path).cause is Cause.ABSENT
    Tree(tmp_path)
    assert ask_sysfs(tmp_path).cause is Cause.NO_DEVICE


def test_what_a_container_was_not_given_is_not_used(tree: Tree) -> None:
    (tree.root / "dev/dri/renderD128").unlink()

    told = ask_sysfs(tree.root)

    assert [(device.pci, device.order) for device in told.devices] == [("0000:c5:00.0", 0)]
    assert (told.reason, told.notes) == ("2 GPUs, 1 of them not given to us", ())
    (tree.root / "dev/dri/renderD129").unlink()
    assert ask_sysfs(tree.root).cause is Cause.NO_DEVICE


@pytest.mark.parametrize("file", ["kfd", "dri/renderD128"])
def test_a_device_file_that_may_not_be_opened_is_named(tree: Tree, file: str) -> None:
    (tree.root / "dev/dri/renderD129").unlink()
    (tree.root / "dev" / file).chmod(0)

    with as_nobody():
        told = ask_sysfs(tree.root)

    assert (told.cause, told.devices) == (Cause.NO_PERMISSION, ())
    assert f"/dev/{file}: Permission denied" in f"{told.reason} {told.notes}"


def test_a_node_that_may_not_be_read_is_not_ours(tree: Tree) -> None:
    (tree.kfd / "topology/nodes/1/properties").chmod(0)

    with as_nobody():
        told = ask_sysfs(tree.root)

    assert [device.pci for device in told.devices] == ["0000:c5:00.0"]


def test_nonsense_in_the_kernels_files_is_not_told(tree: Tree) -> None:
    tree.card(130, "0000:77:00.0", mem_info_vram_total="", gpu_busy_percent="busy")
    tree.node(3, _MI210 | {"drm_render_minor": 130, "location_id": 30464})

    odd = ask_sysfs(tree.root).devices[2]

    assert (odd.pci, odd.memory_total_bytes, odd.utilization) == ("0000:77:00.0", None, None)
