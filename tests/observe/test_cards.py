"""Cards on the PCI bus that no driver tells of."""

from pathlib import Path

import pytest

from reconciler.observe.devices.cards import Card, unclaimed_cards
from reconciler.plan.gpus import Vendor
from tests.plan.gpu import amd


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A GPU of each vendor, the first one's sound, and the machine's own graphics."""
    for address, vendor, kind in (
        ("0000:17:00.0", "0x10de", "0x030200"),
        ("0000:17:00.1", "0x10de", "0x040300"),
        ("0000:0c:00.0", "0x1002", "0x120000"),
        ("0000:04:00.0", "0x1a03", "0x030000"),
    ):
        folder = tmp_path / "sys/bus/pci/devices" / address
        folder.mkdir(parents=True)
        (folder / "vendor").write_text(f"{vendor}\n", encoding="ascii")
        (folder / "class").write_text(f"{kind}\n", encoding="ascii")
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
