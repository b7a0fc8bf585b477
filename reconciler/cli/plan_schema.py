"""The shape of `plan --output json`, as types: the published JSON schema is generated from them.

`changes_json` and `plan_view` write it; a test holds what they write against this.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from reconciler.plan.changes import Verb
from reconciler.plan.phase import State

_DIALECT = "https://json-schema.org/draft/2020-12/schema"

Bytes = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(ge=0)]


class Need(msgspec.Struct, kw_only=True):
    """What a model needs of one memory."""

    total_bytes: Annotated[
        Bytes, Meta(description="What has to be free; a lower bound unless it is complete.")
    ]
    complete: Annotated[bool, Meta(description="Whether every part is known.")]
    weights_bytes: Bytes | None
    mapped_bytes: Annotated[Bytes, Meta(description="Of the weights: pages of their files.")]
    kv_cache_bytes: Bytes | None
    context_tokens: Annotated[int | None, Meta(description="For so many tokens is the KV cache.")]
    overhead_bytes: Bytes
    claimed_bytes: Annotated[
        Bytes | None, Meta(description="What the engine takes, however little of it it needs.")
    ]
    checked_bytes: Annotated[
        Bytes | None, Meta(description="What the engine wants to see free at its start.")
    ]
    grows: Annotated[bool, Meta(description="It takes what is free for a larger context.")]


class Field(msgspec.Struct, kw_only=True):
    """A field that is written otherwise now; null: it is not written."""

    path: Annotated[str, Meta(examples=["extra_args.ctx_size"])]
    old: Any
    new: Any


class Model(msgspec.Struct, kw_only=True):
    """What happens to one model of the node."""

    model: str
    action: Verb
    reason: str
    state: Annotated[State | None, Meta(description="As it is now; null: it is not there.")]
    source: str | None
    fallback: Annotated[
        str | None, Meta(description="The source that is taken where no backend runs `source`.")
    ]
    engine: Annotated[str | None, Meta(description="What there is to say of its engine.")]
    fetch: Annotated[
        bool | None, Meta(description="Whether files come first; null: nothing is started.")
    ]
    memory: Annotated[Need | None, Meta(description="Of the machine; null: not known.")]
    memory_on_gpus: Annotated[
        dict[str, Need], Meta(description="By the GPU's UUID or PCI address; none: not known.")
    ]
    download_bytes: Annotated[Bytes | None, Meta(description="Of what is fetched.")]
    download_with: Annotated[
        str | None,
        Meta(description="The model whose download brings these files too, which counts them."),
    ]
    cached_bytes: Annotated[Bytes | None, Meta(description="Of its files, what is there.")]
    downtime_seconds: Annotated[
        Seconds | None,
        Meta(
            description="For how long nothing of it is expected to serve; 0: always something "
            "does; null: not known."
        ),
    ]
    ready_seconds: Annotated[
        Seconds | None,
        Meta(
            description="Until what is started is expected to serve, its download counted; null: "
            "nothing is started, or that is not known."
        ),
    ]
    held: Annotated[str | None, Meta(description="Why a rail holds it back.")]
    fields: list[Field]


class Elsewhere(msgspec.Struct, kw_only=True):
    """A model of the manifest that is not for this node."""

    name: str
    reason: str


class Balance(msgspec.Struct, kw_only=True):
    """How full one memory is, and would be once the plan has come true."""

    gpu: Annotated[str, Meta(description="The GPU's UUID or PCI address, or `host`.")]
    index: int | None
    total_bytes: Bytes
    used_bytes: Bytes
    after_bytes: Annotated[
        Bytes, Meta(description="A lower bound unless it is complete; may be more than the total.")
    ]
    complete: bool


class Step(msgspec.Struct, kw_only=True):
    """One action of those ahead."""

    action: Annotated[str, Meta(examples=["FetchFiles", "StopBackend", "StartBackend"])]
    model: str
    gpus: list[str]
    reason: str


class Eviction(msgspec.Struct, kw_only=True):
    """Files that would leave the cache to make room."""

    prefix: str
    revision: str
    size_bytes: Bytes


class Node(msgspec.Struct, kw_only=True):
    """One node."""

    node: str
    models: Annotated[list[Model], Meta(description="Sorted by name.")]
    elsewhere: list[Elsewhere]
    gpus: Annotated[list[Balance], Meta(description="Those whose memory is told.")]
    host: Annotated[Balance | None, Meta(description="The machine's memory; null: not told.")]
    order: Annotated[list[Step], Meta(description="What would be done, in its order.")]
    evictions: list[Eviction]
    notes: Annotated[list[str], Meta(description="What holds up the node as a whole.")]
    errors: Annotated[
        list[str], Meta(description="For which the node's newest revision is not in force.")
    ]
    unasked: Annotated[
        str | None,
        Meta(description="Why the node could not be asked, so that all else is empty."),
    ]


class Totals(msgspec.Struct, kw_only=True):
    """Over all nodes."""

    download_bytes: Annotated[Bytes, Meta(description="Of those whose size is known.")]
    downloads_of_unknown_size: Annotated[
        int, Meta(ge=0, description="Models whose files may have to come, nobody knows how many.")
    ]
    evicted_bytes: Bytes
    longest_downtime_seconds: Annotated[
        Seconds | None, Meta(description="Of those that are known; null: none is.")
    ]
    downtimes_unknown: Annotated[
        int, Meta(ge=0, description="Models that restart with a gap that is not known.")
    ]


class Plan(msgspec.Struct, kw_only=True):
    """What `xgen-model plan --output json` prints. Within `api: 1` fields are only added."""

    api: Literal[1]
    agent: Annotated[str | None, Meta(description="Whom it asked; null: nobody.")]
    against: Annotated[str, Meta(description="What the manifest is compared with, as a clause.")]
    changes: Annotated[bool, Meta(description="Whether there is anything to do.")]
    summary: Annotated[dict[str, int], Meta(description="How many models, by action.")]
    totals: Totals
    nodes: list[Node]


def plan_schema() -> dict[str, Any]:
    """The JSON schema (2020-12) of the whole."""
    schema = msgspec.json.schema(Plan)
    return {"$schema": _DIALECT, "title": "xgen-model plan", **schema}
