"""`xgen-model gpus`: which GPUs this machine has, who said so, and who uses them."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from reconciler.apply.gpu_numbers import FILE, GpuNumbers
from reconciler.cli.client import Agent, Json, find_agent, known_agent
from reconciler.cli.gpus_view import Found, Who, render
from reconciler.cli.node_gpus import show_node_gpus
from reconciler.cli.options import DataDir, GpuModeOrAgents, ServerOption, TargetOption, data_dir
from reconciler.cli.output import Output, OutputOption, console, print_json, remark, show
from reconciler.errors import XgenError
from reconciler.observe.devices.cards import unclaimed_cards
from reconciler.observe.devices.survey import survey
from reconciler.observe.processes import HOST_PID_NAMESPACE, pid_namespace, read_process
from reconciler.plan.gpu_mode import GpuMode
from reconciler.plan.gpu_order import inventory, pci_order
from reconciler.plan.gpu_roll import Roll, enrolled
from reconciler.plan.gpus import Gpu, pci_address

_NOT_KNOWN = "which models hold GPUs is not known"
Holders = Mapping[str, Sequence[str]]
"""Of each model that holds GPUs, their ids."""


def gpus(
    server: ServerOption = None,
    target: TargetOption = None,
    data: DataDir = None,
    gpu_mode: GpuModeOrAgents = None,
    output: OutputOption = Output.TEXT,
) -> None:
    """Show this machine's GPUs, what each step of the detection said, and what uses them.

    It asks the machine itself, with the masks of its own environment; the agent of this node, where
    one answers, says which models hold which GPU. --target NODE shows the GPUs of that node, as its
    agent tells of them.
    """
    if target is not None:
        show_node_gpus(find_agent(server, data_dir(data), target), output)
        return
    agent = _agent(server, data_dir(data))
    view = _view(agent)
    holders = _holders(view)
    mode = gpu_mode or GpuMode(view.get("gpu", {}).get("mode", GpuMode.NODE))
    answers = survey()
    named = [gpu for ids in holders.values() for gpu in ids]
    united = inventory(answers, os.environ, named, mode)
    roll = enrolled(numbers_known(data_dir(data), mode), answers, os.environ, named, mode)
    devices = sorted(roll.devices, key=pci_order)
    found = Found(
        mode=mode,
        answers=answers,
        gpus=devices,
        notes=(*united.faults, *united.notes),
        without=roll.without,
        cards=tuple(unclaimed_cards(devices)),
        held_by={gpu.identity: _held_by(gpu, holders) for gpu in devices},
        processes=_processes(devices, _leaders(agent, view)),
    )
    if output is Output.JSON:
        print_json(_as_json(found))
    else:
        out = console()
        show(out, render(found, width=out.width))
    here = {each for gpu in devices for each in _ids(gpu)}
    for model, ids in holders.items():
        for gone in (gpu for gpu in ids if gpu not in here):
            remark(f"{model} holds {gone}, which is not here")


def numbers_known(folder: Path, mode: GpuMode) -> Roll | None:
    """What an agent with this data folder knows of earlier ones; None: nothing."""
    return GpuNumbers(folder / FILE).roll if mode is GpuMode.NODE else None


def _agent(server: str | None, folder: Path) -> Agent | None:
    try:
        return known_agent(server, folder)
    except XgenError as exc:
        remark(f"{_NOT_KNOWN}: {exc}")
        return None


def _view(agent: Agent | None) -> Json:
    """What the agent says of this node; empty where none does."""
    try:
        return agent.get("/api/cluster/_self") if agent is not None else {}
    except XgenError as exc:
        remark(f"{_NOT_KNOWN}: {exc}")
        return {}


def _holders(view: Json) -> Holders:
    models = view.get("models", [])
    return {model["name"]: model["gpu_ids"] for model in models if model.get("gpu_ids")}


def _ids(gpu: Gpu) -> set[str]:
    return {gpu.identity, *(each for each in (gpu.uuid, gpu.pci) if each is not None)}


def _held_by(gpu: Gpu, holders: Holders) -> list[str]:
    return [
        model
        for model, ids in holders.items()
        if any(each in _ids(gpu) or pci_address(each) == gpu.identity for each in ids)
    ]


def _leaders(agent: Agent | None, view: Json) -> Mapping[int, str]:
    """The models by the pids of their first processes, where these are this machine's: its data
    folder names the agent."""
    if agent is None or agent.folder is None:
        return {}
    return {model["pid"]: model["name"] for model in view.get("models", []) if model.get("pid")}


def _processes(devices: Sequence[Gpu], leaders: Mapping[int, str]) -> dict[int, Who]:
    """Those on GPUs. Drivers tell the machine's own pids: elsewhere they are others'."""
    if pid_namespace() != HOST_PID_NAMESPACE:
        return {}
    pids = {process.pid for device in devices for process in device.processes or ()}
    found = {pid: read_process(pid) for pid in pids}
    return {
        pid: Who(name=process.name, model=leaders.get(process.session))
        for pid, process in found.items()
        if process is not None
    }


def _processes_as_json(gpu: Gpu, found: Found) -> list[dict[str, object]] | None:
    if gpu.processes is None:
        return None
    nobody = Who(name=None)
    return [
        asdict(process) | asdict(found.processes.get(process.pid, nobody))
        for process in gpu.processes
    ]


def _as_json(found: Found) -> dict[str, object]:
    return {
        "api": 1,
        "mode": found.mode,
        "chain": [
            {
                "step": answer.step,
                "devices": len(answer.devices),
                "reason": answer.reason,
                "cause": answer.cause,
                "notes": answer.notes,
                "driver": answer.driver,
            }
            for answer in found.answers
        ],
        "gpus": [
            asdict(gpu)
            | {
                "class": gpu.gpu_class,
                "models": found.held_by[gpu.identity],
                "processes": _processes_as_json(gpu, found),
            }
            for gpu in found.gpus
        ],
        "notes": found.notes,
        "without": found.without,
        "unclaimed": [asdict(card) for card in found.cards],
    }
