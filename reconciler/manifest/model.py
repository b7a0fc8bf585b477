"""The fields of `xgen.io/v1alpha1`, as frozen pydantic models (design §4).

Only shapes and single values are checked here; what holds between fields, and what this release
refuses, is in `rules`. Descriptions feed the JSON schema, and with it an editor's hovers.
"""

from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    StrictBool,
    StrictInt,
    Tag,
)

from reconciler.manifest.check_fields import CHECK_TAGS, MAX_CHECKS, CheckEntry
from reconciler.manifest.fields import (
    AbsolutePath,
    Alias,
    Digest,
    Duration,
    EnvName,
    Flag,
    GgufFile,
    GpuId,
    GpuMemory,
    Limit,
    Name,
    NodeName,
    Source,
    is_list,
)
from reconciler.manifest.rail_fields import NodeSettings, RevisionText, StopLimitText, Windows

API_GROUP = "xgen.io"
API_VERSION = "xgen.io/v1alpha1"
KIND = "ModelManifest"

BackendId = Literal[
    "vllm-cuda",
    "vllm-rocm",
    "vllm-cpu",
    "llama-server-cuda",
    "llama-server-rocm",
    "llama-server-vulkan",
    "llama-server-cpu",
    "xllamacpp",
    "llama-cpp-python",
]
_Backend = Literal["auto", BackendId]


def _is_no_backend(name: str) -> str:
    if name in get_args(_Backend):
        raise ValueError(f"is a backend's id, not the name of a build; say backend: {name}")
    return name


EngineName = Annotated[Name, AfterValidator(_is_no_backend)]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=False)


class SecretReference(_Strict):
    """A value that stands outside the manifest: give exactly one of the two keys."""

    from_env: EnvName | None = Field(
        default=None, description="Name of a variable in the agent's own environment."
    )
    from_file: AbsolutePath | None = Field(
        default=None,
        description="Absolute path of a file on the node, such as /run/secrets/token.",
    )


def _is_reference(value: Any) -> str:
    return "<reference>" if isinstance(value, dict | SecretReference) else "<text>"


EnvValue = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[SecretReference, Tag("<reference>")],
    Discriminator(_is_reference),
]
"""Tags stand in angle brackets, so that they are told from keys in an error's location."""


TAGS = frozenset({"<text>", "<reference>", "<list>", "<word>", *CHECK_TAGS})


Nodes = Annotated[
    Annotated[Literal["all"], Tag("<word>")]
    | Annotated[tuple[NodeName, ...], Field(min_length=1), Tag("<list>")],
    Discriminator(is_list),
]


class Timeouts(_Strict):
    """How long things may take. Changing one restarts nothing."""

    download: Limit | None = Field(
        default=None, description="Fetching the files from the hub; null: no limit."
    )
    ready: Limit = Field(
        default=1800.0,
        description="From the start of the process to its first real answer.",
        json_schema_extra={"default": "30m"},
    )
    first_answer: Limit = Field(
        default=300.0,
        description="The one real request by which a backend shows that it is ready.",
        json_schema_extra={"default": "5m"},
    )
    stall: Limit = Field(
        default=900.0,
        description="No progress for this long while requests are in flight, and a failed probe: "
        "the backend counts as hung.",
        json_schema_extra={"default": "15m"},
    )
    drain: Duration = Field(
        default=60.0,
        description="Running requests may finish for this long before a stop.",
        json_schema_extra={"default": "60s"},
    )
    stop: Duration = Field(
        default=15.0,
        description="Wait after SIGTERM to the backend's first process.",
        json_schema_extra={"default": "15s"},
    )
    kill: Duration = Field(
        default=10.0,
        description="Wait after SIGTERM to all of the backend's processes, before SIGKILL.",
        json_schema_extra={"default": "10s"},
    )


class Fallback(_Strict):
    """Other files of the same model, used where no backend for `source` can run."""

    source: Source = Field(description="As the model's own `source`.")
    file: GgufFile | None = Field(default=None, description="As the model's own `file`.")
    digest: Digest | None = Field(default=None, description="As the model's own `digest`.")
    extra_args: dict[Flag, JsonValue] = Field(
        default_factory=dict, description="Flags for the fallback's backend."
    )
    env: dict[EnvName, EnvValue] = Field(
        default_factory=dict, description="Environment of the fallback's backend."
    )


class Rollout(_Strict):
    """How a change goes over several holders of the model."""

    max_unavailable: Annotated[StrictInt, Field(ge=1)] = Field(
        default=1, description="At most so many holders are down at a time."
    )


class Model(_Strict):
    """One model: which files, which backend, which flags, and where."""

    name: Name = Field(
        description="The served name: what clients put into `model`. Unique in the whole manifest."
    )
    enabled: StrictBool = Field(
        default=True,
        description="false: the model is stopped, its files stay; requests get 503 model_disabled.",
    )
    suspend: StrictBool = Field(
        default=False,
        description="This model is neither started, stopped nor restarted; what serves goes on.",
    )
    aliases: tuple[Alias, ...] = Field(
        default=(),
        description="Further names that clients may use. Unique too. Changing them restarts "
        "nothing.",
    )
    source: Source = Field(
        description="Where the files are: a prefix of the hub of exactly two parts "
        "(gguf/<org>_<name>), one .gguf in it, file:///absolute/path on the node, or "
        "hf://org/name[@revision].",
        examples=["gguf/ggml-org_gemma-3-270m-it", "file:///srv/models/gemma"],
    )
    file: GgufFile | None = Field(
        default=None, description="Which GGUF, where a prefix holds several (first shard of it)."
    )
    digest: Digest | None = Field(
        default=None, description="Pins the content of the prefix: the sha256 of its catalog."
    )
    refresh: Literal["never", "auto"] = Field(
        default="never", description="auto: take up a newer push to the prefix by itself."
    )
    type: Literal["llm", "embedding", "rerank", "transcription"] = Field(
        default="llm",
        description="What the model answers: chat and completions, embeddings, or scores of texts.",
    )
    format: Literal["auto", "safetensors", "gguf"] = Field(
        default="auto", description="Format of the weights; auto: what the files are."
    )
    backend: _Backend = Field(
        default="auto", description="The engine; auto: the first that can run here, and says why."
    )
    engine: EngineName | None = Field(
        default=None,
        description="A build of the backend that the node's operator gave this name (--engine), "
        "instead of the default one.",
    )
    fallback: Fallback | None = Field(
        default=None, description="Other files, used where no backend for `source` can run."
    )
    nodes: Nodes | None = Field(
        default=None,
        description="The nodes that run it: a list of names, or `all`. Left out: every lone node.",
    )
    replicas: Annotated[StrictInt, Field(ge=1)] | None = Field(
        default=None, description="So many nodes, chosen by the cluster; instead of `nodes`."
    )
    node_selector: dict[str, str] = Field(
        default_factory=dict, description="Only nodes with these labels."
    )
    spread: Literal["node"] = Field(default="node", description="At most one replica a node.")
    gpus: Annotated[StrictInt, Field(ge=0)] | None = Field(
        default=None,
        description="How many GPUs; 0: the CPU. Left out: 1 where there are GPUs, else the CPU.",
    )
    gpu_ids: tuple[GpuId, ...] = Field(
        default=(),
        description="These GPUs, by index, UUID or PCI address; instead of `gpus`.",
    )
    gpu_memory: GpuMemory | None = Field(
        default=None,
        description="The share of each GPU that this model may take (0.45 or 20GiB). Two models "
        "may share a GPU if both say it and the sum fits.",
    )
    tensor_parallel_size: Annotated[StrictInt, Field(ge=1)] | None = Field(
        default=None, description="Left out: number of GPUs ÷ pipeline_parallel_size."
    )
    pipeline_parallel_size: Annotated[StrictInt, Field(ge=1)] = Field(
        default=1, description="× tensor_parallel_size = number of GPUs."
    )
    extra_args: dict[Flag, JsonValue] = Field(
        default_factory=dict,
        description="Flags of the engine by their long names: max_model_len: 8192. true: the bare "
        "flag; false: its --no- form; null: not the default's. `@/` means the model's folder.",
    )
    env: dict[EnvName, EnvValue] = Field(
        default_factory=dict,
        description="Environment of the backend: text, {from_env: NAME} or {from_file: /path}.",
    )
    timeouts: Timeouts = Field(
        default_factory=Timeouts, description="How long things may take. Restarts nothing."
    )
    checks: Annotated[tuple[CheckEntry, ...], Field(max_length=MAX_CHECKS)] = Field(
        default=(),
        description="What it is asked before it serves, and must answer; a wrong answer is a "
        "failed start. Changing them restarts nothing.",
    )
    strategy: Literal["auto", "recreate", "surge"] = Field(
        default="auto",
        description="recreate: stop the old process, then start the new one. surge: start the new "
        "one while the old one serves. auto: surge where GPUs are counted, or on CPU, and there is "
        "room for both. Restarts nothing.",
    )
    on_failure: Literal["revert", "keep", "stop"] = Field(
        default="revert",
        description="If a new version cannot start: bring back the last good one; keep it failed "
        "and try again; or stop, and try nothing until something changes. Restarts nothing.",
    )
    keep_last_good: StrictBool = Field(
        default=True,
        description="false: where there is no room for the files of both, what serves is stopped "
        "and its files go, then the new ones are fetched. Restarts nothing.",
    )
    rollout: Rollout = Field(
        default_factory=Rollout, description="How a change goes over several holders."
    )
    max_in_flight: Annotated[StrictInt, Field(ge=1)] | None = Field(
        default=None, description="At most so many requests at a time are passed on; others wait."
    )
    affinity: Literal["none", "session", "prefix"] = Field(
        default="none", description="Which requests go to the same replica."
    )
    priority: StrictInt = Field(
        default=0, description="Order of loads, the highest first; and who keeps a GPU."
    )
    skip_memory_check: StrictBool = Field(
        default=False, description="Start although the estimate says that the memory will not do."
    )


class DefaultExtraArgs(_Strict):
    """Default flags by family of backends."""

    vllm: dict[Flag, JsonValue] = Field(
        default_factory=dict, description="For models that run on vLLM."
    )
    llama: dict[Flag, JsonValue] = Field(
        default_factory=dict,
        description="For models that run on llama.cpp, by llama-server's long names.",
    )


class Defaults(_Strict):
    """Merged key by key into the models of this document; the model's own key wins."""

    timeouts: Timeouts = Field(default_factory=Timeouts, description="Default timeouts.")
    extra_args: DefaultExtraArgs = Field(
        default_factory=DefaultExtraArgs, description="Default flags by family of backends."
    )


class Spec(_Strict):
    """What has to run."""

    suspend: StrictBool = Field(
        default=False,
        description="Every node observes and reports; nothing starts, stops or restarts.",
    )
    allow_empty: StrictBool = Field(
        default=False,
        description="Zero models in all are meant. Without it an empty manifest changes nothing.",
    )
    stop_limit: StopLimitText | None = Field(
        default=None,
        description="How many of a node's running models one revision may stop before it waits "
        "for a confirmation: a share (where four or more run), a number, or none. Left out: the "
        "node's own limit, 50%.",
    )
    confirm_stop: RevisionText | None = Field(
        default=None,
        description="The revision that waits for a confirmation, and is meant: one that stops no "
        "more than that is taken up.",
    )
    maintenance_windows: Windows = Field(
        default=(),
        description="When what serves may be stopped or restarted for a change. None: at any time.",
    )
    defaults: Defaults = Field(
        default_factory=Defaults, description="Merged key by key into this document's models."
    )
    node_settings: dict[NodeName, NodeSettings] = Field(
        default_factory=dict, description="Settings of single nodes, by node name."
    )
    models: tuple[Model, ...] = Field(default=(), description="The models.")


class Metadata(_Strict):
    """As in any Kubernetes object; only people and other tools read it."""

    name: Annotated[str, Field(min_length=1, max_length=253)] = Field(
        description="A name for people."
    )
    namespace: str | None = Field(default=None, description="For other tools; not read here.")
    labels: dict[str, str] = Field(
        default_factory=dict, description="For other tools; not read here."
    )
    annotations: dict[str, str] = Field(
        default_factory=dict, description="For other tools; not read here."
    )


class Document(_Strict):
    """Which models run on which nodes (xgen-model)."""

    api_version: Literal["xgen.io/v1alpha1"] = Field(alias="apiVersion", description="The API.")
    kind: Literal["ModelManifest"] = Field(description="The kind.")
    metadata: Metadata = Field(description="Name, and what other tools keep here.")
    spec: Spec = Field(description="What has to run.")
