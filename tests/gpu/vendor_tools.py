"""The GPUs as the vendors' own programs tell of them, to compare ours with."""

import json
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reconciler.plan.gpus import pci_address
from tests.gpu.ledger import NotChecked, Told

_SECONDS = 20
_MIB = 2**20
Card = Mapping[str, Any]
"""A device of `xgen-model gpus --output json`."""
Totals = dict[str, int | None]
"""Bytes of memory by PCI address; None: the program does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    vendor: str
    argv: tuple[str, ...]
    read: Callable[[str], Totals]


def compare(tool: Tool, cards: Sequence[Card]) -> Told:
    """Raises AssertionError where the two do not tell the same, NotChecked without the program."""
    printed = _printed(tool)
    try:
        theirs = tool.read(printed)
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise NotChecked(f"{tool.argv[0]} prints what is not understood here: {exc!r}") from exc
    return compared(tool, theirs, cards)


def compared(tool: Tool, theirs: Totals, cards: Sequence[Card]) -> Told:
    ours = {card["pci"]: card for card in cards if card["vendor"] == tool.vendor}
    name = tool.argv[0]
    assert ours.keys() == theirs.keys(), (
        f"{name} has {_list(theirs)}; xgen-model gpus has {_list(ours)}"
    )
    for address, total in theirs.items():
        own = ours[address]["memory_total_bytes"]
        if total is None or own is None or ours[address]["mig_of"] is not None:
            continue
        assert abs(total - own) <= _MIB, (
            f"{address}: {name} tells {total:,} bytes of memory; xgen-model gpus {own:,}"
        )
    if not theirs:
        raise NotChecked(f"{name} has no GPU, nor has xgen-model gpus one of {tool.vendor}")
    return Told(said=f"{name} has the same: {_list(theirs)}", figures={"gpus": sorted(theirs)})


def _printed(tool: Tool) -> str:
    name = tool.argv[0]
    if shutil.which(name) is None:
        raise NotChecked(f"there is no {name} here")
    try:
        done = subprocess.run(
            tool.argv, capture_output=True, text=True, timeout=_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as exc:
        raise NotChecked(f"{name} does not answer within {_SECONDS} s") from exc
    if done.returncode != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        raise NotChecked(f"{name} exits with {done.returncode}: {''.join(last)}")
    return done.stdout


def _nvidia_smi(text: str) -> Totals:
    """`00000000:17:00.0, 81559`, in MiB."""
    rows = [line.split(", ") for line in text.splitlines() if line.strip()]
    return {
        _address(address): int(total) * _MIB if total.strip().isdigit() else None
        for address, total in rows
    }


def _amd_smi(text: str) -> Totals:
    told = json.loads(text)
    rows = told.get("gpu_data", []) if isinstance(told, dict) else told
    return {_address(row["bdf"]): None for row in rows}


def _rocm_smi(text: str) -> Totals:
    rows = [row for name, row in json.loads(text).items() if name.startswith("card")]
    return {_address(row["PCI Bus"]): int(row["VRAM Total Memory (B)"]) for row in rows}


def _address(text: str) -> str:
    found = pci_address(text)
    if found is None:
        raise ValueError(f"{text!r} is no PCI address")
    return found


def _list(addresses: Mapping[str, object]) -> str:
    return ", ".join(sorted(addresses)) or "none"


TOOLS = (
    Tool(
        vendor="nvidia",
        argv=("nvidia-smi", "--query-gpu=pci.bus_id,memory.total", "--format=csv,noheader,nounits"),
        read=_nvidia_smi,
    ),
    Tool(vendor="amd", argv=("amd-smi", "list", "--json"), read=_amd_smi),
    Tool(
        vendor="amd",
        argv=("rocm-smi", "--showbus", "--showmeminfo", "vram", "--json"),
        read=_rocm_smi,
    ),
)
