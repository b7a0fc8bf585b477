"""Fields of one model that contradict each other, so that no node can run it.

Only what the manifest alone shows. Where there is a fallback, that can still run: a warning then.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from reconciler.manifest.family import FORMATS, LLAMA, backend_family
from reconciler.manifest.policy import canonical
from reconciler.manifest.problem import Finding, Loc, Severity
from reconciler.manifest.supported import ACTED_ON
from reconciler.plan.backend_ids import is_for_cpu
from reconciler.plan.desired import JsonValue

_Map = Mapping[str, JsonValue]
_BACKENDS = ACTED_ON["models.*.backend"]


def contradictions(loc: Loc, model: _Map, defaults: _Map) -> Iterator[Finding]:
    """`model`: plain values, as they are written, whatever else is wrong with them. `defaults`:
    the document's flags for vLLM."""
    for finding in _findings(loc, model, defaults):
        if isinstance(model.get("fallback"), dict):
            message = f"{finding.message}; only the fallback can run"
            yield replace(finding, message=message, severity=Severity.WARNING)
        else:
            yield finding
    yield from _strategy_findings((*loc, "strategy"), model)


def _strategy_findings(loc: Loc, model: _Map) -> Iterator[Finding]:
    """GPUs that are named are those that the process before holds, so both must have a share."""
    share = model.get("gpu_memory")
    fits = isinstance(share, str) or (isinstance(share, float) and share <= 0.5)
    if model.get("strategy") == "surge" and model.get("gpu_ids") and not fits:
        message = (
            "the process before holds the GPUs that gpu_ids names until it stops; ask for a number "
            "of them (gpus), for half of each at most (gpu_memory), or for 'recreate'"
        )
        yield Finding(loc=loc, message=message)


def _findings(loc: Loc, model: _Map, defaults: _Map) -> Iterator[Finding]:
    written = model.get("backend")
    backend = str(written) if written in _BACKENDS else "auto"
    yield from _format_findings((*loc, "backend"), backend, model)
    yield from _type_findings((*loc, "type"), backend, model)
    if backend == "xllamacpp" and model.get("engine") is not None:
        message = "xllamacpp has no builds that have a name; leave it out"
        yield Finding(loc=(*loc, "engine"), message=message)
    yield from _device_findings(loc, backend, model)
    yield from _size_findings(loc, backend, model, defaults)


def _format_findings(loc: Loc, backend: str, model: _Map) -> Iterator[Finding]:
    weights = _weights(model)
    if backend == "auto" or weights is None:
        return
    runs = FORMATS[_family(backend)]
    if runs != weights:
        yield Finding(loc=loc, message=f"{backend} runs {runs}, and the files are {weights}")


def _weights(model: _Map) -> str | None:
    """The format, as far as it is certain before the files are seen."""
    written = model.get("format")
    if written in FORMATS.values():
        return str(written)
    source = model.get("source")
    named = isinstance(source, str) and source.endswith(".gguf")
    return "gguf" if named or isinstance(model.get("file"), str) else None


def _type_findings(loc: Loc, backend: str, model: _Map) -> Iterator[Finding]:
    llama = backend != "auto" and _family(backend) == LLAMA
    if model.get("type") == "transcription" and (llama or _weights(model) == "gguf"):
        message = "llama.cpp's servers do not transcribe; vLLM does, with safetensors"
        yield Finding(loc=loc, message=message)
    if model.get("type") == "rerank" and backend == "llama-cpp-python":
        yield Finding(loc=loc, message=f"{backend} has no rerank; llama-server has")


def _device_findings(loc: Loc, backend: str, model: _Map) -> Iterator[Finding]:
    count = _count(model)
    where = "gpu_ids" if model.get("gpu_ids") else "gpus"
    if count and is_for_cpu(backend):
        yield Finding(loc=(*loc, where), message=f"{backend} runs on the CPU; leave it out")
    elif count == 0 and backend != "auto" and not is_for_cpu(backend):
        yield Finding(loc=(*loc, where), message=f"0 is the CPU, and {backend} runs on GPUs")
    elif model.get("gpu_memory") is not None and (count == 0 or is_for_cpu(backend)):
        message = "the model runs on the CPU, so there is no GPU to share; leave it out"
        yield Finding(loc=(*loc, "gpu_memory"), message=message)


def _size_findings(loc: Loc, backend: str, model: _Map, defaults: _Map) -> Iterator[Finding]:
    tensor = _whole(model.get("tensor_parallel_size"))
    pipeline = _whole(model.get("pipeline_parallel_size")) or 1
    sizes = [("tensor_parallel_size", tensor or 1)] if tensor is not None else []
    sizes += [("pipeline_parallel_size", pipeline)] if pipeline != 1 else []
    if not sizes:
        return
    where = (*loc, sizes[0][0])
    llama = _family(backend) == LLAMA if backend != "auto" else _weights(model) == "gguf"
    if llama:
        if (tensor or 1) == pipeline == 1:
            return
        message = "it is vLLM's; llama.cpp spreads a model over its GPUs by itself"
        yield Finding(loc=where, message=message)
        return
    count, copies = _count(model), _copies(model, defaults)
    if count is None or copies is None:
        return
    sizes += [("data_parallel_size", copies)] if copies != 1 else []
    parts, places = math.prod(size for _, size in sizes), max(count, 1)
    if (parts != places) if tensor is not None else (places % parts != 0):
        product = " × ".join(f"{name} {size}" for name, size in sizes)
        total = f" = {parts}" if len(sizes) > 1 else ""
        gets = f"{count} GPU{'s' if count > 1 else ''}" if count else "the CPU"
        yield Finding(loc=where, message=f"cannot run on {gets}: {product}{total}")


def _count(model: _Map) -> int | None:
    """How many GPUs are written; None: nothing is said of it, or not in a way to be read."""
    ids = model.get("gpu_ids")
    if isinstance(ids, list) and ids:
        return len(ids)
    return _whole(model.get("gpus"))


def _copies(model: _Map, defaults: _Map) -> int | None:
    """vLLM's `data_parallel_size`; None: it is written, and no number."""
    own = model.get("extra_args")
    flags = {**defaults, **(own if isinstance(own, dict) else {})}
    spelled = {canonical(key): value for key, value in flags.items()}
    copies = spelled.get("data_parallel_size")
    if copies is None:
        return 1
    if isinstance(copies, str) and copies.isdecimal():
        copies = int(copies)
    return _whole(copies) or None


def _whole(value: JsonValue) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _family(backend: str) -> str:
    return backend_family(backend=backend, weights="auto", source="", file=None)
