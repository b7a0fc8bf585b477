"""The GPUs of another node, as its agent tells of them."""

from collections.abc import Sequence

from rich.text import Text

from reconciler.cache.amounts import human
from reconciler.cli.client import Agent, Json
from reconciler.cli.gpus_view import GPU_COLUMNS
from reconciler.cli.output import Output, console, print_json, remark, show
from reconciler.cli.table import table
from reconciler.plan.gpus import pci_address


def show_node_gpus(agent: Agent, output: Output) -> None:
    """What no other machine can see is left out: the steps of the detection, and processes."""
    view = agent.get("/api/cluster/_self")
    gpu = view["gpu"]
    devices = [{**each, "models": _holders(each, view["models"])} for each in gpu["devices"]]
    if output is Output.JSON:
        print_json({"api": 1, "node": view["node"], "mode": gpu["mode"], "gpus": devices})
    elif devices:
        out = console()
        show(out, table(GPU_COLUMNS, [_row(each) for each in devices], width=out.width))
        for each in devices:
            if each.get("problem"):
                remark(f"{each.get('pci') or each.get('uuid')} is not used: {each['problem']}")
    else:
        remark(f"{view['node']} has no GPU that its agent knows of")


def _holders(device: Json, models: Sequence[Json]) -> list[str]:
    """The models on it, which name a GPU by UUID or PCI address."""
    names = {device.get("uuid"), device.get("pci")} - {None}
    return [
        str(model["name"])
        for model in models
        if any(each in names or pci_address(each) in names for each in model.get("gpu_ids") or ())
    ]


def _row(device: Json) -> list[Text]:
    busy = device.get("utilization")
    return [
        Text(_text(device.get("index")), style="bold"),
        Text(_text(device.get("name"))),
        Text(_text(device.get("class"))),
        Text(_text(device.get("architecture"))),
        Text(_memory(device)),
        Text("-" if busy is None else f"{busy} %"),
        Text(_text(device.get("pci"))),
        Text(_text(device.get("uuid"))),
        Text(", ".join(device["models"]) or "-"),
    ]


def _text(value: object) -> str:
    return "-" if value is None else str(value)


def _memory(device: Json) -> str:
    total, used = device.get("memory_total_bytes"), device.get("memory_used_bytes")
    if total is None:
        return "-"
    return f"{'?' if used is None else human(used)} of {human(total)}"
