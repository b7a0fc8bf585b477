"""What can be started on this node, as values: found by `builds`, read by `choice` (PURE)."""

from dataclasses import dataclass, field

from reconciler.backend.engine_files import Stamps
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
BACKENDS = (
    VLLM_CUDA,
    VLLM_ROCM,
    VLLM_CPU,
    LLAMA_SERVER_CUDA,
    LLAMA_SERVER_ROCM,
    LLAMA_SERVER_VULKAN,
    LLAMA_SERVER_CPU,
    XLLAMACPP,
    LLAMA_CPP_PYTHON,
)
"""All ids of design §8."""
NAMEABLE = tuple(id for id in BACKENDS if id != XLLAMACPP)
"""Backends of which an operator may name builds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedEngine:
    """A build that an operator gave a name. `id`: of the backend that it is. `path`: absolute."""

    name: str
    id: str
    path: str


@dataclass(frozen=True, slots=True)
class Listed:
    """A device as an engine itself lists it: `Vulkan0`, `AMD Radeon RX 7900 XTX (RADV NAVI31)`."""

    name: str
    description: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Build:
    """An engine that answered when it was asked for its version.

    `id`: a backend of design §8. `name`: as an operator calls it; None: the default build of its
    id. `command`: how argv begins. `version`: as the engine says it; None where it says nothing.
    `detail`: for operators: which file, which version. `flags`: those that this very build takes.
    `listed`: the devices that it sees itself, where it was asked. `files`: those that it is.
    `programs`: the folder of what it calls by name, of its own environment; None: it has none.
    `hears` False: for sure it cannot read sound.
    """

    id: str
    name: str | None = None
    command: tuple[str, ...]
    version: str | None
    detail: str
    flags: Flags = field(default=Flags(), repr=False)
    listed: tuple[Listed, ...] = ()
    files: Stamps = field(default=(), repr=False)
    programs: str | None = None
    hears: bool = True

    @property
    def key(self) -> tuple[str, str | None]:
        """What it is asked for by."""
        return self.id, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    """A backend that cannot run here. `reason`: why, and how to get it, as a clause. `name`: as of
    a `Build`. `wanted`: an operator has said where it is."""

    id: str
    name: str | None = None
    reason: str
    wanted: bool = False


def called(one: Build | Missing) -> str:
    """For operators: `llama-server-cpu`, or `b1 (llama-server-cpu)`."""
    return one.id if one.name is None else f"{one.name} ({one.id})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What came of asking one engine. `files`: once one of them changes, it may be another."""

    found: tuple[Build | Missing, ...]
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """All backends that this release knows, and all builds that have a name: each is either among
    the builds or missing. One with neither: nobody has looked yet. `failure`: why not, though it
    was tried, as a clause."""

    builds: tuple[Build, ...] = ()
    missing: tuple[Missing, ...] = ()
    failure: str | None = None

    @property
    def known(self) -> bool:
        """Whether somebody has looked."""
        return bool(self.builds or self.missing)

    def build(self, backend: str) -> Build | None:
        """The default one."""
        return self._build((backend, None))

    def why_missing(self, backend: str) -> str | None:
        gaps = (gap for gap in self.missing if gap.name is None)
        return next((gap.reason for gap in gaps if gap.id == backend), None)

    def named(self, name: str) -> Build | Missing | None:
        """None: no build is called so."""
        return next((one for one in self._every if one.name == name), None)

    def successor(self, build: Build) -> Build | None:
        """What is there now in its place."""
        return self._build(build.key)

    def why_gone(self, build: Build) -> str:
        """Where it has no successor."""
        gap = next((gap for gap in self.missing if (gap.id, gap.name) == build.key), None)
        return gap.reason if gap is not None else "nothing is known of it any more"

    @property
    def names(self) -> tuple[tuple[str, str], ...]:
        """Of each build that has one, its name and its id, in alphabetical order."""
        named = ((one.name, one.id) for one in self._every if one.name is not None)
        return tuple(sorted(named))

    @property
    def _every(self) -> tuple[Build | Missing, ...]:
        return (*self.builds, *self.missing)

    def _build(self, key: tuple[str, str | None]) -> Build | None:
        return next((build for build in self.builds if build.key == key), None)
