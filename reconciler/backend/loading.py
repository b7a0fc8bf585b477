"""What an engine is about to load: all that its need of memory follows from (PURE)."""

from dataclasses import dataclass

from reconciler.backend.inventory import Build
from reconciler.backend.model_info import ModelInfo
from reconciler.backend.options import Options
from reconciler.plan.desired import ModelSpec
from reconciler.plan.gpus import Gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """`size_bytes`: of the files that are loaded; 0: not known. `projector`: one is among them.
    `options`: everything that the engine is told. `devices`: the GPUs that it gets; none: the CPU.
    `machine_bytes`: the machine's whole memory, whatever a container may have of it; None: not
    known."""

    spec: ModelSpec
    size_bytes: int
    projector: bool = False
    info: ModelInfo
    build: Build
    options: Options
    devices: tuple[Gpu, ...] = ()
    machine_bytes: int | None = None
