"""The bytes of GGUF files: of a header alone, or of whole small ones."""

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_ALIGNMENT = 32
_F32 = 0


@dataclass(frozen=True, slots=True)
class Tensor:
    """As a header lists it. `offset`: from the end of the header."""

    dimensions: tuple[int, ...]
    kind: int = _F32
    offset: int = 0
    name: str = "t"


@dataclass(frozen=True, slots=True)
class Weights:
    """A tensor of 32-bit floats; the first dimension is the innermost."""

    dimensions: tuple[int, ...]
    values: Sequence[float]


def header(
    keys: Mapping[str, object],
    *,
    version: int = 3,
    count: int | None = None,
    tensors: Sequence[Tensor] = (),
) -> bytes:
    """The bytes of a GGUF up to its tensors' data, without what pads them.

    Values: text, bool, int (u32), float, list of text or of int (i32).
    """
    counts = (len(tensors), len(keys) if count is None else count)
    begin = struct.pack("<4sIQQ", b"GGUF", version, *counts)
    body = b"".join(_text(key) + _value(value) for key, value in keys.items())
    return begin + body + b"".join(map(_tensor, tensors))


def gguf(keys: Mapping[str, object], weights: Mapping[str, Weights]) -> bytes:
    """A whole file. Values of keys: as in `header`."""
    tensors: list[Tensor] = []
    data = b""
    for name, one in weights.items():
        if math.prod(one.dimensions) != len(one.values):
            raise ValueError(f"{name} has {len(one.values)} values for {one.dimensions}")
        tensors.append(Tensor(one.dimensions, offset=len(data), name=name))
        data += _padded(struct.pack(f"<{len(one.values)}f", *one.values))
    return _padded(header(keys, tensors=tensors)) + data


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % _ALIGNMENT)


def _tensor(tensor: Tensor) -> bytes:
    count = len(tensor.dimensions)
    said = struct.pack(f"<I{count}QIQ", count, *tensor.dimensions, tensor.kind, tensor.offset)
    return _text(tensor.name) + said


def _value(value: object) -> bytes:
    match value:
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)
        case str():
            return struct.pack("<I", 8) + _text(value)
        case [int(), *_]:
            return struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)
        case list():
            return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))
        case _:
            raise TypeError(f"no GGUF value for {value!r}")


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<Q", len(encoded)) + encoded
