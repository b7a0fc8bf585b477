"""What v1alpha1 has and this release does not do yet: refused when written, never ignored.

This is the one list of it. A field that gets its code loses its row here, and with it the refusal
and the limit in the JSON schema.
"""

from collections.abc import Iterator, Mapping

from reconciler.manifest.problem import Finding, Loc, shown
from reconciler.plan.desired import JsonValue

ACTED_ON: Mapping[str, tuple[JsonValue, ...]] = {
    "node_settings.*.drain": (False,),
    "node_settings.*.labels": ({},),
    "models.*.format": ("auto", "gguf", "safetensors"),
    "models.*.backend": (
        "auto",
        "llama-server-cuda",
        "llama-server-rocm",
        "llama-server-vulkan",
        "llama-server-cpu",
        "xllamacpp",
        "llama-cpp-python",
        "vllm-cuda",
        "vllm-rocm",
        "vllm-cpu",
    ),
    "models.*.replicas": (None,),
    "models.*.node_selector": ({},),
    "models.*.rollout.max_unavailable": (1,),
}
"""Dotted paths below `spec` (`*`: every item), and the values that code acts on."""

RESERVED: Mapping[str, str] = {
    "activation": "loading on demand is not supported yet",
    "nnodes": "one model over several nodes is not supported",
    "node_rank": "one model over several nodes is not supported",
}
"""Keys that are unknown on purpose."""


def unsupported(spec: JsonValue) -> Iterator[Finding]:
    """What a document's `spec` asks for and does not get."""
    for pattern, values in ACTED_ON.items():
        for loc, value in _written(spec, pattern):
            if value not in values:
                yield Finding(loc=loc, message=_not_yet(value, values))


def _not_yet(value: JsonValue, values: tuple[JsonValue, ...]) -> str:
    if values in ((None,), ({},), ([],)):
        return "not supported yet; leave it out"
    known = " or ".join(shown(known) for known in values if known is not None)
    return f"not supported yet: {shown(value)}; in this release only {known}"


def _written(spec: JsonValue, pattern: str) -> Iterator[tuple[Loc, JsonValue]]:
    """Every place that matches `pattern`, as far as the document has such places."""
    places: list[tuple[Loc, JsonValue]] = [(("spec",), spec)]
    for part in pattern.split("."):
        places = [step for loc, value in places for step in _steps(loc, value, part)]
    yield from places


def _steps(loc: Loc, value: JsonValue, part: str) -> Iterator[tuple[Loc, JsonValue]]:
    if isinstance(value, dict):
        keys = list(value) if part == "*" else [part] if part in value else []
        yield from (((*loc, key), value[key]) for key in keys)
    elif isinstance(value, list) and part == "*":
        yield from (((*loc, index), item) for index, item in enumerate(value))
