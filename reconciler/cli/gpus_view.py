"""GPUs as they are shown to people: the chain of questions, and a table of what it found."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from reconciler.cache.amounts import human
from reconciler.cli.table import Column, table
from reconciler.observe.devices.cards import Card
from reconciler.plan.gpu_mode import GpuMode
from reconciler.plan.gpu_survey import Answer, Cause
from reconciler.plan.gpus import Gpu, GpuProcess
from reconciler.plan.ids import GpuUuid

_CHAIN = (Column(title="ASKED"), Column(title="GPUS"), Column(title="ANSWER", prose=True))
GPU_COLUMNS = (
    Column(title="GPU"),
    Column(title="NAME", rank=2),
    Column(title="CLASS", rank=4),
    Column(title="ARCH", rank=5),
    Column(title="MEMORY", rank=1),
    Column(title="BUSY", rank=6),
    Column(title="PCI", rank=3),
    Column(title="UUID", rank=8),
    Column(title="MODELS"),
)
_GPUS = (*GPU_COLUMNS, Column(title="PROCESSES", rank=7))
_QUIET = (Cause.ABSENT, Cause.NO_DEVICE, Cause.NO_DRIVER, Cause.NOT_ASKED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Who:
    """A process on a GPU. `name`: its program's; None: not known. `model`: whose it is; None:
    nobody's of this node's agent, or not known."""

    name: str | None
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`mode`: whose GPUs count. `notes`: on masks. `without`: see `Roll`. `cards`: on the
    bus, and nobody's device. `held_by`: the models on a GPU. `processes`: by pid, where the pids
    are ours."""

    mode: GpuMode
    answers: Sequence[Answer]
    gpus: Sequence[Gpu]
    notes: Sequence[str]
    without: str | None
    cards: Sequence[Card]
    held_by: Mapping[GpuUuid, Sequence[str]]
    processes: Mapping[int, Who]


def render(found: Found, *, width: int) -> RenderableType:
    rows = [row for answer in found.answers for row in _answer(answer)]
    parts: list[RenderableType] = [table(_CHAIN, rows, width=width), Text()]
    if found.gpus:
        parts.append(table(_GPUS, [_gpu(gpu, found) for gpu in found.gpus], width=width))
        parts += [_unusable(gpu) for gpu in found.gpus if gpu.unusable is not None]
    if found.without is not None:
        parts.append(Text(found.without, style="bold"))
    parts.append(Text(f"--gpu-mode {found.mode}: {found.mode.meaning}"))
    parts += [Text(note, style="yellow") for note in found.notes]
    for card in found.cards:
        said = f"{card.pci}: a card of {card.vendor} that was not given to us, or has no driver"
        parts.append(Text(said, style="yellow"))
    return Group(*parts)


def _answer(answer: Answer) -> list[list[Text]]:
    trouble = answer.cause is not None and answer.cause not in _QUIET
    count = str(len(answer.devices) or "-")
    first = [
        Text(answer.step, style="bold"),
        Text(count),
        Text(answer.reason, style="red" if trouble else ""),
    ]
    return [first, *([Text(), Text(), Text(note, style="yellow")] for note in answer.notes)]


def _gpu(gpu: Gpu, found: Found) -> list[Text]:
    models = ", ".join(found.held_by[gpu.identity])
    return [
        Text("-" if gpu.index is None else str(gpu.index), style="bold"),
        Text(f"{gpu.name} (MIG)" if gpu.mig_of else gpu.name),
        Text(gpu.gpu_class),
        Text(gpu.architecture or "-"),
        Text(_memory(gpu)),
        Text("-" if gpu.utilization is None else f"{gpu.utilization} %"),
        Text(gpu.pci or "-"),
        Text(gpu.uuid or "-"),
        Text(models or "-"),
        Text(_processes(gpu.processes, found.processes)),
    ]


def _memory(gpu: Gpu) -> str:
    if gpu.memory_total_bytes is None:
        return "the machine's" if gpu.unified else "-"
    used = "?" if gpu.memory_used_bytes is None else human(gpu.memory_used_bytes)
    return f"{used} of {human(gpu.memory_total_bytes)}"


def _processes(processes: Sequence[GpuProcess] | None, known: Mapping[int, Who]) -> str:
    if processes is None:
        return "not told"
    said = []
    for process in processes:
        who = known.get(process.pid)
        memory = process.memory_bytes
        more = [who.name] if who and who.name else []
        more += [f"of {who.model}"] if who and who.model else []
        more += [] if memory is None else [human(memory)]
        said.append(f"{process.pid} ({', '.join(more)})" if more else str(process.pid))
    return ", ".join(said) or "-"


def _unusable(gpu: Gpu) -> Text:
    return Text(unused(gpu), style="yellow")


def unused(gpu: Gpu) -> str:
    """A MIG instance has its GPU's address."""
    which = f" ({gpu.uuid})" if gpu.mig_of is not None else ""
    return f"{gpu.pci or gpu.identity}{which} is not used: {gpu.unusable}"
