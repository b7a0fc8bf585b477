"""Where a launch takes place: what an adapter is given beside the model (PURE)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.plan.gpus import Gpu

CUDA_CACHE = {"CUDA_CACHE_PATH": "cuda"}
"""What CUDA's driver compiles, for any engine: else it lies in HOME, which goes with a pod."""


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

    def kept(self, folders: Mapping[str, str]) -> dict[str, str]:
        """Variables that name folders within the shared cache; none where there is no such cache.

        Args:
            folders: Variable to the folder's name there.
        """
        if not self.shared_cache:
            return {}
        return {name: f"{self.shared_cache}/{folder}" for name, folder in folders.items()}
