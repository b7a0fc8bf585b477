"""The fields of a fleet file: what the nodes are, for a plan that asks none of them.

Every field but a node's name may be left out; of what is not written nothing is concluded.
"""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictInt

from reconciler.manifest.fields import GpuIdentity, NodeName, PciAddress, Size
from reconciler.manifest.model import BackendId, EngineName

_Count = Annotated[StrictInt, Field(ge=1, le=64)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=False)


class FleetGpu(_Strict):
    """One GPU, or several that are alike."""

    vendor: Literal["nvidia", "amd"] = Field(description="Whose it is.")
    name: Annotated[str, Field(min_length=1, max_length=200)] = Field(
        default="GPU", description="As the driver calls it. `gpus: N` gives GPUs of one name."
    )
    count: _Count = Field(default=1, description="So many of them, numbered one after the other.")
    memory: Size | None = Field(default=None, description="All that each of them has.")
    reserved: Size = Field(
        default=0,
        description="What of it models cannot have: the driver, a desktop, other programs.",
        json_schema_extra={"default": "0GiB"},
    )
    architecture: Annotated[str, Field(min_length=1, max_length=40)] | None = Field(
        default=None,
        description="Compute capability (in quotes) or gfx name. Of AMD's GPUs the engines are "
        "chosen by it.",
        examples=["9.0", "gfx942"],
    )
    index: Annotated[StrictInt, Field(ge=0)] | None = Field(
        default=None, description="Its number on the node. Left out: in the order of the list."
    )
    uuid: GpuIdentity | None = Field(
        default=None, description="Needed where manifests name it by that."
    )
    pci: PciAddress | None = Field(
        default=None, description="Needed where manifests name it by that."
    )
    problem: Annotated[str, Field(min_length=1, max_length=500)] | None = Field(
        default=None, description="Why no model can have it."
    )


class FleetEngine(_Strict):
    """One build of an engine."""

    backend: BackendId = Field(description="Which engine it is.")
    name: EngineName | None = Field(
        default=None,
        description="The name by which manifests ask for it (`engine:`). Left out: the default "
        "build of its backend.",
    )
    version: Annotated[str, Field(min_length=1, max_length=100)] | None = Field(
        default=None, description="In quotes. Flags are checked by it, where it decides about them."
    )


class FleetNode(_Strict):
    """One node."""

    name: NodeName = Field(description="Its name, as manifests have it in `nodes`.")
    labels: dict[str, str] = Field(default_factory=dict, description="Its labels.")
    gpu_mode: Literal["node", "plugin"] = Field(
        default="node", description="plugin: a device plugin gives GPUs; models cannot name them."
    )
    gpus: tuple[FleetGpu, ...] | None = Field(
        default=None, description="Its GPUs; []: it has none. Left out: not known."
    )
    engines: tuple[FleetEngine, ...] | None = Field(
        default=None, description="Its engines; []: it has none. Left out: not known."
    )
    memory: Size | None = Field(default=None, description="All memory of the machine.")
    reserved: Size = Field(
        default=0,
        description="What of the machine's memory models cannot have.",
        json_schema_extra={"default": "0GiB"},
    )
    cache_budget: Size | None = Field(
        default=None, description="How much of its disk model files may take."
    )


class FleetSpec(_Strict):
    """What there is."""

    nodes: tuple[FleetNode, ...] = Field(
        description="The nodes.", json_schema_extra={"minItems": 1}
    )


class FleetMetadata(_Strict):
    """Only people and other tools read it."""

    name: Annotated[str, Field(min_length=1, max_length=253)] = Field(
        description="A name for people."
    )


class Fleet(_Strict):
    """Which nodes there are, and what they have (xgen-model plan --fleet)."""

    api_version: Literal["xgen.io/v1alpha1"] = Field(alias="apiVersion", description="The API.")
    kind: Literal["Fleet"] = Field(description="The kind.")
    metadata: FleetMetadata | None = Field(default=None, description="A name for people.")
    spec: FleetSpec = Field(description="What there is.")
