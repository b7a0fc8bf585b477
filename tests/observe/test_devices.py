"""The survey of a machine's GPUs: the real child, the vendors' real modules, our libraries."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from reconciler.observe.processes import read_processes
from reconciler.plan.gpu_survey import Answer, Cause, Step
from reconciler.plan.gpus import Gpu, GpuProcess
from tests.e2e.agent import is_alive
from tests.observe.conftest import Machine
from tests.observe.gpu_libraries import GpuLibraries, records
from tests.observe.test_cards import put_card
from tests.waiting import wait_for, wait_until

GIB = 2**30


def card(number: int, **more: object) -> dict[str, object]:
    """A GPU of NVIDIA."""
    return {
        "uuid": f"GPU-n{number}",
        "pci": f"0000:{number:02x}:00.0",
        "total": 80 * GIB,
        "used": GIB,
        "util": number,
    } | more


def accelerator(number: int, **more: object) -> dict[str, object]:
    """A GPU of AMD."""
    return {
        "uuid": f"GPU-a{number}",
        "pci": f"0000:{number:02x}:00.0",
        "hip": number,
        "total": 192 * GIB,
        "used": GIB,
        "util": number,
    } | more


def identities(answer: Answer) -> list[str]:
    return [device.identity for device in answer.devices]


def only(answer: Answer) -> Gpu:
    (device,) = answer.devices
    return device


def test_both_vendors_are_asked_in_their_own_orders_and_strangers_are_seen(
    machine: Machine,
) -> None:
    """Scenario 64, gpustack#5784: eight of NVIDIA, as NVML numbers them. Two of AMD, whose library
    prints to stdout."""
    shuffled = (5, 2, 7, 1, 8, 3, 6, 4)
    stranger = records(
        "process", {"on": "GPU-n7", "pid": 77, "memory": 4096}, {"on": "GPU-n7", "pid": 78}
    )
    machine.has(
        nvidia=records("gpu", *map(card, shuffled)) + stranger,
        amd=records("sys", {"prints": '{"answer"'})
        + records("gpu", accelerator(12, hip=1), accelerator(13, hip=0, gfx="0x90a"))
        + records("process", {"on": "0000:0c:00.0", "pid": 79, "memory": 8192}),
    )

    told = machine.survey()

    assert identities(told[Step.NVML]) == [f"GPU-n{number}" for number in shuffled]
    assert [device.order for device in told[Step.NVML].devices] == list(range(8))
    assert told[Step.NVML].driver == "580.95.05"
    seven = told[Step.NVML].devices[2]
    assert (seven.pci, seven.architecture, seven.utilization) == ("0000:07:00.0", "9.0", 7)
    assert (seven.memory_total_bytes, seven.memory_free_bytes) == (80 * GIB, 79 * GIB)
    assert seven.processes == (GpuProcess(pid=77, memory_bytes=4096), GpuProcess(pid=78))
    first, second = told[Step.AMDSMI].devices
    assert (first.uuid, first.order, first.architecture) == ("GPU-a12", 1, "gfx942")
    assert (second.uuid, second.order, second.architecture) == ("GPU-a13", 0, "gfx90a")
    assert (first.memory_total_bytes, first.memory_used_bytes) == (192 * GIB, GIB)
    assert first.processes == (GpuProcess(pid=79, memory_bytes=8192),)
    assert told[Step.SYSFS].cause is told[Step.TORCH].cause is Cause.NOT_ASKED
    assert told[Step.CPU].cause is None
    assert [answer.notes for answer in told.values()] == [()] * len(told)


def test_in_mig_mode_the_instances_are_the_devices(machine: Machine) -> None:
    """Scenario 69, ollama#14031: by their own UUIDs."""
    machine.has(
        nvidia=records("gpu", card(1, mig=1), card(2, mig=1), card(3, mig=0))
        + records(
            "mig",
            {"of": "GPU-n1", "slot": 4, "uuid": "MIG-b", "total": 20 * GIB, "used": GIB},
            {"of": "GPU-n1", "slot": 0, "uuid": "MIG-a", "total": 40 * GIB, "used": 0},
        )
        + records("process", {"on": "MIG-b", "pid": 5, "memory": 1}),
    )

    nvml = machine.survey()[Step.NVML]

    assert identities(nvml) == ["MIG-a", "MIG-b", "GPU-n2", "GPU-n3"]
    _, instance, bare, plain = nvml.devices
    assert (instance.mig_of, instance.slot, instance.pci) == ("GPU-n1", 4, "0000:01:00.0")
    assert (instance.memory_total_bytes, instance.utilization) == (20 * GIB, None)
    assert instance.processes == (GpuProcess(pid=5, memory_bytes=1),)
    assert bare.unusable is not None
    assert plain.unusable is None
    assert nvml.notes == ()


def test_what_a_gpu_does_not_tell_is_none_and_what_fails_is_noted(machine: Machine) -> None:
    """3: not supported. GB10 has no memory of its own; amdsmi says "N/A"."""
    unified = {"nvmlDeviceGetMemoryInfo": 3, "nvmlDeviceGetUtilizationRates": 3}
    forbidden = {"nvmlDeviceGetComputeRunningProcesses_v3": 4, "uuid": "GPU-\udcff"}
    forbidden |= {"util": 0xFFFFFFFF}
    bare = {"uuid": "N/A", "name": "N/A", "hip": 0xFFFFFFFF, "util": 0xFFFF}
    machine.has(
        nvidia=records("gpu", card(1, **unified), card(2, **forbidden)),
        amd=records(
            "gpu",
            accelerator(12, **bare),
            accelerator(13, amdsmi_get_gpu_process_list=10, amdsmi_get_gpu_memory_usage=2),
        ),
    )

    told = machine.survey()

    first, second = told[Step.NVML].devices
    assert (first.memory_total_bytes, first.utilization, first.unified) == (None, None, True)
    assert (second.processes, second.uuid, second.unified) == (None, None, False)
    assert second.utilization is None
    assert len(told[Step.NVML].notes) == 2
    third, fourth = told[Step.AMDSMI].devices
    assert (third.uuid, third.order, third.utilization) == (None, None, None)
    assert third.name == "AMD GPU"
    assert (fourth.processes, fourth.memory_used_bytes) == (None, None)
    assert fourth.memory_total_bytes == 192 * GIB
    assert len(told[Step.AMDSMI].notes) == 1


def test_an_apu_works_in_the_machines_memory(machine: Machine) -> None:
    machine.has(
        amd=records("gpu", accelerator(0xC5, gfx="0x1151", total=GIB, gtt=64 * GIB, gtt_used=GIB))
    )

    apu = only(machine.survey()[Step.AMDSMI])

    assert (apu.integrated, apu.unified) == (True, True)
    assert (apu.memory_total_bytes, apu.memory_free_bytes) == (64 * GIB, 63 * GIB)


def test_gpus_that_others_were_given_are_not_ours_and_hip_does_not_count_them(
    machine: Machine, tmp_path: Path
) -> None:
    """amdsmi tells of the whole machine's; a device plugin gives files (scenario 67)."""
    (tmp_path / "dev/dri").mkdir()
    for minor in (129, 131):
        (tmp_path / f"dev/dri/renderD{minor}").touch()
    hips = {12: 3, 13: 2, 14: 1, 15: 0}
    cards = [accelerator(bus, hip=hip, render=116 + bus) for bus, hip in hips.items()]
    machine.has(amd=records("gpu", *cards))

    told = machine.survey()[Step.AMDSMI]

    assert told.reason == "4 GPUs, 2 of them not given to us"
    assert [(device.identity, device.order) for device in told.devices] == [
        ("GPU-a13", 1),
        ("GPU-a15", 0),
    ]
    assert told.notes == ()
    for minor in (129, 131):
        (tmp_path / f"dev/dri/renderD{minor}").unlink()
    told = machine.survey()[Step.AMDSMI]
    assert (told.devices, told.cause) == ((), Cause.NO_DEVICE)


def test_a_gpu_of_which_nothing_is_told_is_no_missing_gpu(machine: Machine) -> None:
    """4: what a container was not given looks so to NVML, and is nobody's fault."""
    machine.has(
        nvidia=records("gpu", card(1, error=4)), amd=records("gpu", accelerator(12, error=43))
    )

    told = machine.survey()

    assert (told[Step.NVML].devices, told[Step.NVML].cause) == ((), Cause.NO_DEVICE)
    assert len(told[Step.NVML].notes) == 1
    assert (told[Step.AMDSMI].devices, told[Step.AMDSMI].cause) == ((), Cause.OTHER)


@pytest.mark.parametrize(
    ("nvml", "amdsmi", "expected"),
    [
        (9, 34, (Cause.NO_DRIVER, Cause.NO_DRIVER)),
        (18, 18, (Cause.MISMATCH, Cause.OTHER)),
        (4, 10, (Cause.NO_PERMISSION, Cause.NO_PERMISSION)),
        (999, 0, (Cause.OTHER, Cause.NO_DEVICE)),
    ],
)
def test_a_library_that_cannot_begin_says_why(
    machine: Machine, nvml: int, amdsmi: int, expected: tuple[Cause, Cause]
) -> None:
    machine.has(
        nvidia=records("sys", {"nvmlInitWithFlags": nvml}),
        amd=records("sys", {"amdsmi_init": amdsmi}),
    )

    told = machine.survey()

    assert (told[Step.NVML].cause, told[Step.AMDSMI].cause) == expected
    assert told[Step.SYSFS].cause is told[Step.TORCH].cause is Cause.ABSENT


def test_a_library_that_hangs_does_not_cost_the_other_ones_answer(machine: Machine) -> None:
    machine.has(nvidia="sys;nvmlInitWithFlags=hang\n", amd=records("gpu", accelerator(12)))

    told = machine.survey(step_seconds=5)

    assert told[Step.NVML].cause is Cause.HUNG
    assert identities(told[Step.AMDSMI]) == ["GPU-a12"]
    assert told[Step.TORCH].cause is Cause.NOT_ASKED
    assert [each for each in read_processes().values() if each.parent == os.getpid()] == []


def test_a_library_that_breaks_its_process_does_not_cost_the_other_ones_answer(
    machine: Machine,
) -> None:
    machine.has(nvidia=records("gpu", card(1)), amd="sys;amdsmi_init=abort\n")

    told = machine.survey()

    assert told[Step.AMDSMI].cause is Cause.CRASHED
    assert "SIGABRT" in told[Step.AMDSMI].reason
    assert identities(told[Step.NVML]) == ["GPU-n1"]


def test_a_library_of_another_release_is_told_from_none(
    machine: Machine, libraries: GpuLibraries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The module binds every function at its import; NVML's binds them at the call."""
    (tmp_path / "lib").mkdir()
    nothing = tmp_path / "nothing.c"
    nothing.write_text(
        "int nvmlInitWithFlags(unsigned f) { return f ? 1 : 0; }\n", encoding="utf-8"
    )
    for name in ("libamd_smi.so", "libnvidia-ml.so.1"):
        output = tmp_path / "lib" / name
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", output, nothing], check=True)
    monkeypatch.setenv("ROCM_PATH", str(tmp_path))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path / "lib"))

    told = machine.survey()

    assert told[Step.AMDSMI].cause is Cause.MISMATCH
    assert "undefined symbol" in told[Step.AMDSMI].reason
    assert told[Step.NVML].cause is Cause.OTHER


def test_rocms_own_module_goes_before_the_installed_one(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = tmp_path / "share/amd_smi/amdsmi/__init__.py"
    module.parent.mkdir(parents=True)
    module.write_text("raise RuntimeError('ours')\n", encoding="utf-8")
    monkeypatch.setenv("ROCM_HOME", str(tmp_path))

    assert "ours" in machine.survey()[Step.AMDSMI].reason


TORCH = """
from types import SimpleNamespace as _Values
from torch.version import *

class cuda:
    is_available = staticmethod(lambda: True)
    device_count = staticmethod(lambda: 1)
    mem_get_info = staticmethod(lambda order: (1024, 4096))

    @staticmethod
    def get_device_properties(order):
        return _Values(
            name="Orin", major=8, minor=7, uuid="0-1", is_integrated=True,
            pci_domain_id=0, pci_bus_id=1, pci_device_id=0,
        )
"""


def test_torch_is_asked_where_nobody_else_has_a_device_and_its_build_can(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build for the CPU is not even imported: that takes seconds."""
    package = tmp_path / "site/torch"
    package.mkdir(parents=True)
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    version = package / "version.py"
    (package / "__init__.py").write_text("raise SystemExit('imported')\n", encoding="utf-8")
    version.write_text("__version__ = '2.9'\ncuda = None\nhip = None\n", encoding="utf-8")

    for_cpu = machine.survey()[Step.TORCH]
    (package / "__init__.py").write_text(TORCH, encoding="utf-8")
    version.write_text("__version__ = '2.9'\ncuda = '13.0'\nhip = None\n", encoding="utf-8")
    for_cuda = machine.survey()[Step.TORCH]

    assert for_cpu.cause is Cause.ABSENT
    orin = only(for_cuda)
    assert (orin.uuid, orin.pci, orin.architecture) == ("GPU-0-1", "0000:01:00.0", "8.7")
    assert (orin.memory_total_bytes, orin.memory_used_bytes) == (4096, 3072)
    assert orin.unified


_CHILD = (sys.executable, "-P", "-m", "reconciler.observe.devices.child")


def test_the_child_ends_with_whoever_asks(machine: Machine) -> None:
    machine.has(nvidia="sys;nvmlInitWithFlags=hang\n")
    asks = "from reconciler.observe.devices.survey import survey; survey()"
    with subprocess.Popen([sys.executable, "-c", asks]) as parent:
        children = Path(f"/proc/{parent.pid}/task/{parent.pid}/children")
        child = int(wait_for(lambda: children.read_text().split() or None, what="its child")[0])
        parent.kill()
    wait_until(lambda: not is_alive(child), what="the end of the child")


def test_the_child_ends_by_itself_where_nobody_ends_it(machine: Machine) -> None:
    """Its alarm is the kernel's: a library that hangs cannot hold it up."""
    machine.has(nvidia="sys;nvmlInitWithFlags=hang\n")
    ours, its = os.pipe()
    with subprocess.Popen(
        [*_CHILD, str(its), str(os.getpid())],
        stdin=subprocess.PIPE,
        pass_fds=[its],
    ) as child:
        os.close(its)
        assert child.stdin is not None
        child.stdin.write(b"{}")
        child.stdin.close()
        with open(ours, "rb") as answers:
            assert b'"amdsmi"' in answers.readline()
            assert b'"sysfs"' in answers.readline()
            child.send_signal(signal.SIGALRM)
        assert child.wait(30) == -signal.SIGALRM


@pytest.mark.parametrize("has_card", [True, False])
@pytest.mark.parametrize(
    ("step", "vendor", "function", "code"),
    [
        (Step.NVML, "0x10de", "nvmlInitWithFlags", 9),
        (Step.AMDSMI, "0x1002", "amdsmi_init", 34),
    ],
)
def test_a_driver_that_is_not_loaded_is_a_fault_with_a_card_and_no_gpu_without(
    machine: Machine,
    tmp_path: Path,
    step: Step,
    vendor: str,
    function: str,
    code: int,
    has_card: bool,
) -> None:
    told = records("sys", {function: code})
    machine.has(**{"nvidia" if step is Step.NVML else "amd": told})
    if has_card:
        put_card(tmp_path, "0000:17:00.0", vendor)

    answer = machine.survey()[step]

    assert answer.cause is (Cause.UNLOADED if has_card else Cause.NO_DRIVER)
    assert answer.reason.endswith("on the PCI bus: 0000:17:00.0") is has_card
