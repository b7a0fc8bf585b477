"""A fleet file's text, from what agents tell of their nodes (PURE)."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reconciler.manifest.model import API_VERSION

Json = Mapping[str, Any]
_UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"))
_KIB = 1 << 10


def fleet_text(servers: Sequence[Json], memories: Mapping[str, int], *, source: str) -> str:
    """`servers`: nodes as the cluster's view has them. `memories`: of the machines, in bytes, where
    they are told. `source`: who told it, for a comment."""
    lines = [
        f"# Written by `xgen-model fleet` from {source}. Labels, cache_budget and what of",
        "# memories is reserved are for people to add.",
        f"apiVersion: {API_VERSION}",
        "kind: Fleet",
        "spec:",
        "  nodes:",
    ]
    for server in servers:
        lines += _node(server, memories.get(str(server["node"])))
    return "\n".join(lines) + "\n"


def _node(server: Json, memory: int | None) -> Iterator[str]:
    yield f"    - name: {_text(server['node'])}"
    gpu = server.get("gpu", {})
    if gpu.get("mode") == "plugin":
        yield "      gpu_mode: plugin"
    if memory is not None:
        yield f"      memory: {size(memory)}"
    yield from _listed("gpus", [_gpu(each) for each in gpu.get("devices", ())])
    engines = server.get("engines")
    if engines is not None:
        there = [each for each in engines if each.get("problem") is None]
        yield from _listed("engines", [_engine(each) for each in there])


def _listed(key: str, items: Sequence[Mapping[str, str]]) -> Iterator[str]:
    if not items:
        yield f"      {key}: []"
        return
    yield f"      {key}:"
    for item in items:
        yield f"        - {{{', '.join(f'{name}: {value}' for name, value in item.items())}}}"


def _gpu(device: Json) -> Mapping[str, str]:
    """Values as YAML."""
    nvidia = device.get("class") == "nvidia"
    told = {
        "index": str(device["index"]),
        "vendor": "nvidia" if nvidia else "amd",
        "name": _text(device.get("name") or "GPU"),
    }
    if (total := device.get("memory_total_bytes")) is not None:
        told["memory"] = size(total)
    if device.get("architecture") or not nvidia:
        told["architecture"] = _text(device.get("architecture") or "unknown")
    for key in ("uuid", "pci", "problem"):
        if device.get(key):
            told[key] = _text(device[key])
    return told


def _engine(engine: Json) -> Mapping[str, str]:
    told = {"backend": str(engine["id"])}
    for key in ("name", "version"):
        if engine.get(key):
            told[key] = _text(engine[key])
    return told


def size(size_bytes: int) -> str:
    """In the largest unit in which it is a whole number, so that nothing is lost."""
    for unit, name in _UNITS:
        if size_bytes and size_bytes % unit == 0:
            return f"{size_bytes // unit}{name}"
    return f"{size_bytes // _KIB}KiB"


def _text(value: object) -> str:
    """Quoted: JSON is YAML."""
    return json.dumps(str(value), ensure_ascii=False)
