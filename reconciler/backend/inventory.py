"""What can be started on this node, as values: found by `builds`, read by `choice` (PURE)."""

from dataclasses import dataclass, field

from reconciler.backend.flags import Flags

LLAMA_SERVER_CPU = "llama-server-cpu"
LLAMA_SERVER_CUDA = "llama-server-cuda"
LLAMA_SERVER_ROCM = "llama-server-rocm"
LLAMA_SERVER_VULKAN = "llama-server-vulkan"
XLLAMACPP = "xllamacpp"
LLAMA_CPP_PYTHON = "llama-cpp-python"
VLLM_CUDA = "vllm-cuda"
VLLM_ROCM = "vllm-rocm"
VLLM_CPU = "vllm-cpu"


@dataclass(frozen=True, slots=True)
class Listed:
    """A device as an engine itself lists it: `Vulkan0`, `AMD Radeon RX 7900 XTX (RADV NAVI31)`."""

    name: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """An engine that answered when it was asked for its version.

    `id`: a backend of design §8. `command`: how argv begins. `version`: as the engine says it;
    None where it says nothing. `detail`: for operators: which file, which version. `flags`: those
    that this very build takes. `listed`: the devices that it sees itself, where it was asked.
    """

    id: str
    command: tuple[str, ...]
    version: str | None
    detail: str
    flags: Flags = field(default=Flags(), repr=False)
    listed: tuple[Listed, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A backend that cannot run here. `reason`: why, and how to get it, as a clause."""

    id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """All backends that this release knows: each is either among the builds or missing."""

    builds: tuple[Build, ...] = ()
    missing: tuple[Missing, ...] = ()

    def build(self, backend: str) -> Build | None:
        return next((build for build in self.builds if build.id == backend), None)

    def why_missing(self, backend: str) -> str | None:
        return next((gap.reason for gap in self.missing if gap.id == backend), None)
