"""Reads what a model in safetensors says about itself, without its tensors' data.

A file: u64 length of the header (little-endian), the header in JSON, the data. The header maps
names to {dtype, shape, data_offsets: [begin, end]}, relative to the data, without holes.
Source: the format's description in huggingface/safetensors. config.json: as vLLM reads it.
"""

import os
import re
import struct
from collections.abc import Mapping

import msgspec

from reconciler.backend import hf_config
from reconciler.backend.model_info import ModelInfo
from reconciler.errors import Rejected, Transient
from reconciler.plan.desired import JsonValue

HEADER_LIMIT_BYTES = 100_000_000
"""The format's own limit."""
_JSON_LIMIT_BYTES = 64 * 1024 * 1024
_LENGTH = struct.Struct("<Q")
_INDEX = "model.safetensors.index.json"
_ENCODER = re.compile(
    r"(\w*Bert|\w*Roberta|Deberta\w*|Electra|MPNet|Gte\w*|T5Encoder)(Model|For\w+)"
    r"|\w+For(SequenceClassification|TokenClassification|MaskedLM)"
)
_DECODER = re.compile(r"\w+ForCausalLM")
_HEARING = re.compile("audio|speech", re.IGNORECASE)
"""Some decoders hear, too, such as Phi4MMForCausalLM: their settings then say how."""
_HEAD = "ForSequenceClassification"
_SETTINGS = ("config.json", "params.json")
"""One of them is what an engine begins with; the second is Mistral's own."""


class _Tensor(msgspec.Struct, frozen=True):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


class _Index(msgspec.Struct, frozen=True):
    weight_map: dict[str, str]


def read_model(files: Mapping[str, str]) -> ModelInfo:
    """`files`: by the path in the model's folder, where each is.

    Raises Rejected where a file is not all there, or is none; Transient where it cannot be read.
    """
    weights = {path: tensor_bytes(real) for path, real in files.items() if _is_weights(path)}
    config = _config(files.get("config.json"))
    architectures = config.get("architectures")
    named = architectures[0] if isinstance(architectures, list) and architectures else None
    architecture = named if isinstance(named, str) else None
    dtype = config.get("torch_dtype", config.get("dtype"))
    quantised = "hf_quant_config.json" in files
    return ModelInfo(
        architecture=architecture,
        causal=_ENCODER.fullmatch(architecture or "") is None,
        deaf=_is_deaf(architecture or "", config),
        scores=architecture is not None and architecture.endswith(_HEAD),
        dtype=dtype if isinstance(dtype, str) else None,
        weights_bytes=_loaded(weights, files.get(_INDEX)),
        kv_bytes_per_token=None if quantised else hf_config.kv_bytes(config),
        windows=None if quantised else hf_config.windows(config),
        kv_heads=hf_config.kv_heads(config),
        context_length=hf_config.context_length(config),
    )


def _is_deaf(architecture: str, config: Mapping[str, JsonValue]) -> bool:
    reads = _DECODER.fullmatch(architecture) or _ENCODER.fullmatch(architecture)
    return reads is not None and not any(map(_HEARING.search, config))


def read_folder(path: str) -> ModelInfo:
    """A model as engines are given it: the folder of its files. Raises as `read_model`."""
    try:
        with os.scandir(path) as entries:
            files = {entry.name: entry.path for entry in entries if entry.is_file()}
    except OSError as exc:
        raise Transient(f"cannot read {path}: {exc.strerror}") from exc
    if not any(name in files for name in _SETTINGS):
        raise Rejected(f"cannot use {path}: there is no {_SETTINGS[0]} beside the weights")
    if not any(map(_is_weights, files)):
        raise Rejected(f"cannot use {path}: no .safetensors lies beside its {_SETTINGS[0]}")
    return read_model(files)


def tensor_bytes(path: str) -> int:
    """How large the tensors of one file are together. Raises as `read_model`."""
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            prefix = file.read(_LENGTH.size)
            if len(prefix) < _LENGTH.size:
                raise Rejected(f"cannot read {path}: not a safetensors file: it is too short")
            length: int = _LENGTH.unpack(prefix)[0]
            if length > HEADER_LIMIT_BYTES:
                raise Rejected(
                    f"cannot read {path}: not a safetensors file: its header claims {length} bytes"
                )
            header = file.read(length)
    except OSError as exc:
        raise Transient(f"cannot read {path}: {exc.strerror}") from exc
    if len(header) < length:
        raise Rejected(f"cannot read {path}: it is cut off in its header")
    data_bytes = size - _LENGTH.size - length
    needed = _end_of_data(header, path)
    if data_bytes < needed:
        raise Rejected(
            f"cannot read {path}: it is cut off: {data_bytes} of {needed} bytes of its tensors"
            " are there"
        )
    if data_bytes > needed:
        raise Rejected(f"cannot read {path}: {data_bytes - needed} bytes in it are no tensor's")
    return needed


def _end_of_data(header: bytes, path: str) -> int:
    """The tensors' bytes, which must follow each other without holes."""
    try:
        raw = msgspec.json.decode(header, type=dict[str, msgspec.Raw])
        raw.pop("__metadata__", None)
        tensors = [msgspec.json.decode(each, type=_Tensor) for each in raw.values()]
    except (msgspec.DecodeError, RecursionError) as exc:
        raise Rejected(f"cannot read {path}: not a safetensors file: {exc}") from exc
    end = 0
    for first, last in sorted(tensor.data_offsets for tensor in tensors):
        if first != end or last < first:
            raise Rejected(f"cannot read {path}: its tensors overlap, or leave holes")
        end = last
    return end


def _is_weights(path: str) -> bool:
    """Those that engines load lie beside config.json, not in folders of other exports."""
    return path.endswith(".safetensors") and "/" not in path


def _loaded(weights: Mapping[str, int], index: str | None) -> int | None:
    """vLLM loads what the index names, or all: some repositories hold a second, joined copy."""
    if index is not None:
        try:
            named = set(msgspec.json.decode(_read(index), type=_Index).weight_map.values())
        except (msgspec.DecodeError, RecursionError) as exc:
            raise Rejected(f"cannot read {index}: {exc}") from exc
        missing = sorted(named - set(weights))
        if missing:
            raise Rejected(f"cannot use {index}: it names {missing[0]}, which is not there")
        return sum(weights[path] for path in named)
    joined = [path for path in weights if path.startswith("consolidated")]
    return None if joined and len(joined) < len(weights) else sum(weights.values())


def _config(path: str | None) -> Mapping[str, JsonValue]:
    if path is None:
        return {}
    try:
        config = msgspec.json.decode(_read(path))
    except (msgspec.DecodeError, RecursionError) as exc:
        raise Rejected(f"cannot read {path}: {exc}") from exc
    if not isinstance(config, dict):
        raise Rejected(f"cannot read {path}: it holds no settings")
    return config


def _read(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            content = file.read(_JSON_LIMIT_BYTES + 1)
    except OSError as exc:
        raise Transient(f"cannot read {path}: {exc.strerror}") from exc
    if len(content) > _JSON_LIMIT_BYTES:
        raise Rejected(f"cannot read {path}: it is larger than {_JSON_LIMIT_BYTES >> 20} MiB")
    return content
