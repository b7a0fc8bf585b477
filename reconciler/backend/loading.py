"""What an engine is about to load: all that its need of memory follows from (PURE)."""

from dataclasses import dataclass

from reconciler.backend.inventory import Build
from reconciler.backend.model_info import ModelInfo
from reconciler.backend.options import Options
from reconciler.plan.desired import ModelSpec
from reconciler.plan.observed import FilesCached


@dataclass(frozen=True, slots=True, kw_only=True)
class Loading:
    """`options`: everything that the engine is told. `machine_bytes`: the machine's whole memory,
    whatever a container may have of it; None: not known."""

    spec: ModelSpec
    files: FilesCached
    info: ModelInfo
    build: Build
    options: Options
    machine_bytes: int | None = None
