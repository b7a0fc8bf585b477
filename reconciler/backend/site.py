"""Where a launch takes place: what an adapter is given beside the model (PURE)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.plan.gpus import Gpu


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """`environment`: the agent's own. `secrets`: the values of the references in the model's `env`,
    by variable. `devices`: the GPUs that the model was given, none on CPU. `shared_cache`: a folder
    of the node's for what engines compile and may use again; None: each has its own default.
    """

    port: int
    api_key: str = field(repr=False)
    environment: Mapping[str, str] = field(repr=False)
    secrets: Mapping[str, str] = field(repr=False)
    devices: tuple[Gpu, ...] = ()
    shared_cache: str | None = None
