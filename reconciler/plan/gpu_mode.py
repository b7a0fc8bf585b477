"""Which of the GPUs that an agent sees are its own to give (PURE)."""

from enum import StrEnum

CONTAINER_MASK = "NVIDIA_VISIBLE_DEVICES"
"""What NVIDIA's container runtime was told, by a device plugin among others."""


class GpuMode(StrEnum):
    """NODE: all of them, the node is ours. PLUGIN: those that a device plugin gave this container,
    which may be others at its next start; so models may count them, and not name them."""

    NODE = "node"
    PLUGIN = "plugin"

    @property
    def meaning(self) -> str:
        if self is GpuMode.NODE:
            return "the agent may use every GPU that it sees"
        return "the agent may use what a device plugin gave its container; models write gpus: N"


UNNAMED = (
    "cannot use gpu_ids: with --gpu-mode plugin the GPUs of this container are others at each "
    "start; write gpus: N"
)
NONE_GIVEN = (
    "no device plugin gave this container a GPU (--gpu-mode plugin): models run on the CPU; ask "
    "for nvidia.com/gpu or amd.com/gpu in the limits of the pod"
)
ALL_IS_NO_GIFT = (
    f"{CONTAINER_MASK}=all is what an image says and no device plugin (--gpu-mode plugin), so GPUs "
    f"of NVIDIA are left to others; where the plugin gives device files alone, set {CONTAINER_MASK}"
    "=void"
)
