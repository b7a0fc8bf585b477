"""GPUs that are lost before anybody asked, beside sound ones: told with address and reason."""

from pathlib import Path

import pytest

from reconciler.observe.devices.survey import survey
from reconciler.plan.desired import DesiredModel
from reconciler.plan.gpu_claims import claims
from reconciler.plan.gpu_roll import enrolled
from reconciler.plan.gpu_survey import Answer, Step
from reconciler.plan.gpus import Gpu
from tests.observe.conftest import Machine
from tests.observe.gpu_libraries import records
from tests.observe.test_amd_sysfs import Tree
from tests.observe.test_cards import put_card
from tests.observe.test_devices import accelerator, card, identities
from tests.plan.test_gpu_claims import model

NODE = {"simd_count": 416, "gfx_target_version": 90402, "domain": 0}
NOT_AMDSMI = "lost: the kernel's driver lists it, and amdsmi does not"
NOT_KFD = "lost: amdsmi lists it, and the kernel's driver for computing (KFD) does not"


def put_node(root: Path, bus: int, **more: int) -> None:
    """A GPU of AMD as the kernel lists it."""
    tree = Tree(root)
    minor = 116 + bus
    tree.node(bus, {**NODE, "location_id": bus << 8, "drm_render_minor": minor, **more})
    tree.card(minor, f"0000:{bus:02x}:00.0", mem_info_vram_total=192 << 30)


def refusal(answers: dict[Step, Answer], gpu: str) -> str:
    """Why a model that names it gets none."""
    wanted: DesiredModel = model(gpu_ids=(gpu,))
    roll = enrolled(None, tuple(answers.values()), {})
    return str(claims([wanted], roll, {})[wanted.name].refusal)


def lost(answer: Answer) -> list[Gpu]:
    return [device for device in answer.devices if device.is_lost]


def test_a_gpu_that_is_lost_costs_the_others_nothing(machine: Machine) -> None:
    """Lost before it could be opened; lost after that."""
    opened = {"nvmlDeviceGetHandleByIndex_v2": 0, "nvmlDeviceGetUUID": 0}
    machine.has(
        nvidia=records("gpu", card(1, error=15), card(2), card(3, error=15, **opened)),
        amd=records("gpu", accelerator(12, error=43), accelerator(13)),
    )

    told = machine.survey()

    assert identities(told[Step.NVML]) == ["nvidia:0", "GPU-n2", "GPU-n3"]
    nameless, alive, gone = told[Step.NVML].devices
    assert alive.unusable is None
    assert (nameless.is_lost, gone.is_lost, nameless.is_nameless) == (True, True, True)
    assert told[Step.NVML].notes == ()
    assert identities(told[Step.AMDSMI]) == ["GPU-a13", "amd:0"]
    assert told[Step.AMDSMI].devices[1].is_lost
    assert len(told[Step.AMDSMI].notes) == 1


def test_a_lost_gpu_without_a_name_has_the_address_that_is_left_on_the_bus(
    machine: Machine, tmp_path: Path
) -> None:
    machine.has(
        nvidia=records("gpu", card(1, error=15), card(2)),
        amd=records("gpu", accelerator(12, error=43), accelerator(13)),
    )
    for bus, vendor in ((1, "0x10de"), (2, "0x10de"), (12, "0x1002"), (13, "0x1002")):
        put_card(tmp_path, f"0000:{bus:02x}:00.0", vendor)

    told = machine.survey()

    assert identities(told[Step.NVML]) == ["0000:01:00.0", "GPU-n2"]
    assert identities(told[Step.AMDSMI]) == ["GPU-a13", "0000:0c:00.0"]
    assert refusal(told, "1:0.0") == (
        "cannot use gpu_ids: the GPU (0000:01:00.0) is not used: lost: GPU is lost"
    )
    assert "the GPU (0000:0c:00.0) is not used: lost: amdsmi does not tell where it is: " in (
        refusal(told, "0000:0c:00.0")
    )
    assert "not used are 0000:01:00.0: lost: GPU is lost" in refusal(told, "GPU-n1")


@pytest.mark.parametrize(
    ("left_over", "module"), [(("0000:05:00.0",), None), ((), "vfio-pci"), ((), "nouveau")]
)
def test_which_of_several_cards_is_lost_is_not_guessed(
    machine: Machine, tmp_path: Path, left_over: tuple[str, ...], module: str | None
) -> None:
    """A container sees others' cards; what another driver has is no card of NVML's."""
    machine.has(nvidia=records("gpu", card(1, error=15), card(2)))
    for address in ("0000:01:00.0", "0000:02:00.0", *left_over):
        put_card(tmp_path, address, "0x10de")
    if module is not None:
        (tmp_path / "sys/bus/pci/devices/0000:01:00.0/driver").symlink_to(f"../drivers/{module}")

    assert identities(machine.survey()[Step.NVML]) == ["nvidia:0", "GPU-n2"]


def test_what_the_kernel_lists_and_amdsmi_does_not_is_lost(
    machine: Machine, tmp_path: Path
) -> None:
    machine.has(amd=records("gpu", accelerator(13)))
    for bus in (12, 13):
        put_node(tmp_path, bus, unique_id=bus)

    told = machine.survey()

    (gone,) = lost(told[Step.AMDSMI])
    assert (gone.pci, gone.unusable) == ("0000:0c:00.0", NOT_AMDSMI)
    for name in ("0c:00.0", "GPU-000000000000000c"):
        assert refusal(told, name) == (
            f"cannot use gpu_ids: the GPU (GPU-000000000000000c) is not used: {NOT_AMDSMI} (at "
            "0000:0c:00.0)"
        )
    assert "not used are GPU-000000000000000c at 0000:0c:00.0: lost" in refusal(told, "1")


def test_what_amdsmi_tells_nothing_of_is_the_one_that_the_kernel_lists_besides(
    machine: Machine, tmp_path: Path
) -> None:
    machine.has(amd=records("gpu", accelerator(12, error=43), accelerator(13)))
    for bus in (12, 13):
        put_node(tmp_path, bus)

    (gone,) = lost(machine.survey()[Step.AMDSMI])

    assert gone.pci == "0000:0c:00.0"
    assert "amdsmi does not tell where it is: " in str(gone.unusable)


def test_what_amdsmi_lists_and_the_kernel_does_not_is_lost(
    machine: Machine, tmp_path: Path
) -> None:
    machine.has(amd=records("gpu", accelerator(12), accelerator(13), accelerator(14, hip=~0)))
    put_node(tmp_path, 13)

    told = machine.survey()

    (gone,) = lost(told[Step.AMDSMI])
    assert (gone.pci, gone.unusable) == ("0000:0c:00.0", NOT_KFD)
    assert refusal(told, "0c:00.0") == (
        f"cannot use gpu_ids: the GPU (GPU-a12) is not used: {NOT_KFD} (at 0000:0c:00.0)"
    )


def test_partitions_and_apus_of_the_kernel_alone_are_not_missed(
    machine: Machine, tmp_path: Path
) -> None:
    """A partition is numbered otherwise by amdsmi; an APU counts only where it is named."""
    machine.has(amd=records("gpu", accelerator(13)))
    put_node(tmp_path, 13, location_id=(13 << 8) + (3 << 28))
    put_node(tmp_path, 0x20, gfx_target_version=110501)

    assert lost(machine.survey()[Step.AMDSMI]) == []


def test_what_others_were_given_is_not_lost(machine: Machine, tmp_path: Path) -> None:
    """In a container amdsmi lists the whole machine's, and may tell nothing of one of them."""
    machine.has(
        amd=records(
            "gpu",
            accelerator(12, error=43),
            accelerator(13, render=129),
            accelerator(14, render=130),
        )
    )
    put_node(tmp_path, 13)
    (tmp_path / "dev/dri").mkdir(exist_ok=True)
    (tmp_path / "dev/dri/renderD129").touch()

    told = survey(root=tmp_path)

    amdsmi = next(answer for answer in told if answer.step is Step.AMDSMI)
    assert identities(amdsmi) == ["GPU-a13"]
    assert len(amdsmi.notes) == 1
