"""Cards on the PCI bus that no driver tells of."""

from pathlib import Path

import pytest

from reconciler.observe.devices.cards import Card, unclaimed_cards, with_cards
from reconciler.plan.gpu_roll import enrolled
from reconciler.plan.gpu_survey import Answer, Cause, Step
from reconciler.plan.gpus import Vendor
from tests.plan.gpu import amd


def put_card(root: Path, address: str, vendor: str, kind: str = "0x030200") -> None:
    """On the bus of a tree like `/`."""
    folder = root / "sys/bus/pci/devices" / address
    folder.mkdir(parents=True)
    (folder / "vendor").write_text(f"{vendor}\n", encoding="ascii")
    (folder / "class").write_text(f"{kind}\n", encoding="ascii")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A GPU of each vendor, the first one's sound, and the machine's own graphics."""
    for address, vendor, kind in (
        ("0000:17:00.0", "0x10de", "0x030200"),
        ("0000:17:00.1", "0x10de", "0x040300"),
        ("0000:0c:00.0", "0x1002", "0x120000"),
        ("0000:04:00.0", "0x1a03", "0x030000"),
    ):
        put_card(tmp_path, address, vendor, kind)
    return tmp_path


def test_what_nobody_answers_for_is_told(root: Path) -> None:
    assert unclaimed_cards([], root) == [
        Card(vendor=Vendor.AMD, pci="0000:0c:00.0"),
        Card(vendor=Vendor.NVIDIA, pci="0000:17:00.0"),
    ]


def test_a_partition_is_of_its_card(root: Path) -> None:
    partition = amd(0x0C, pci="0000:0c:00.3")

    assert [card.pci for card in unclaimed_cards([partition], root)] == ["0000:17:00.0"]


def test_a_machine_without_a_bus_has_no_cards(tmp_path: Path) -> None:
    assert unclaimed_cards([], tmp_path) == []


@pytest.mark.parametrize(
    ("step", "module", "card"),
    [(Step.NVML, "nvidia", "0000:17:00.0"), (Step.AMDSMI, "amdgpu", "0000:0c:00.0")],
)
def test_a_driver_that_is_not_loaded_is_at_fault_where_there_is_a_card_for_it(
    root: Path, step: Step, module: str, card: str
) -> None:
    answer = Answer(step=step, reason="Driver Not Loaded", cause=Cause.NO_DRIVER)

    (judged,) = with_cards([answer], root)

    said = f"Driver Not Loaded; on the PCI bus: {card}"
    assert (judged.cause, judged.reason) == (Cause.UNLOADED, said)
    roll = enrolled(None, [judged], {})
    assert (roll.failed, roll.notes) == (True, (f"{step}: {said}",))
    (root / "sys/module" / module).mkdir(parents=True)
    assert with_cards([answer], root) == (answer,)


def test_a_driver_that_is_not_loaded_is_missed_by_nobody_without_a_card(tmp_path: Path) -> None:
    answer = Answer(step=Step.NVML, reason="Driver Not Loaded", cause=Cause.NO_DRIVER)

    assert with_cards([answer], tmp_path) == (answer,)
    assert not enrolled(None, [answer], {}).failed
