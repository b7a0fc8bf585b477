"""Reads what a GGUF says about itself, without its tensors' data, and whether that is all there.

magic "GGUF", u32 version, u64 tensors, u64 keys, then the keys; a key: string, u32 type, value;
a string: u64 length, bytes; an array: u32 type, u64 count, values. Then the tensors: string name,
u32 count of dimensions, u64 each, u32 type, u64 offset from the padded end of all this.
Little-endian. Source: ggml/docs/gguf.md in ggml-org/llama.cpp.
"""

import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO

from reconciler.backend.gguf_layers import layers_of
from reconciler.backend.gguf_types import tensor_bytes
from reconciler.backend.kv_cache import gguf_kv_bytes, gguf_windows
from reconciler.backend.model_info import ModelInfo
from reconciler.errors import Rejected, Transient

HEADER_LIMIT_BYTES = 64 * 1024 * 1024
"""The largest vocabularies take 20 MiB; what claims more is not believed."""
_BLOCK_BYTES = 1024 * 1024
_KEYS_LIMIT = 65536
_TENSORS_LIMIT = 1_000_000
_DIMENSIONS_LIMIT = 8
_ALIGNMENT = 32
_SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")
_HEAD = frozenset({b"cls.weight", b"cls.output.weight"})
"""What makes a score of a text: llama.cpp knows a head by these names, and by no key."""
_POOLING = {0: "none", 1: "mean", 2: "cls", 3: "last", 4: "rank"}
_STRING, _ARRAY = 8, 9
_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q"}
_SCALARS = {kind: struct.Struct("<" + code) for kind, code in (*_FORMATS.items(), (12, "d"))}
_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")

Value = str | int | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Whole:
    """One file that is as large as its tensors need it to be. `tensors`: by name, their bytes.
    `data_bytes`: behind its header."""

    keys: dict[str, Value]
    tensors: tuple[tuple[bytes, int], ...]
    data_bytes: int


def read_header(path: str) -> ModelInfo:
    """Read a model's header (of the first shard, where there are several). Blocks for some 50 ms.

    Raises Rejected where this is not a GGUF that can be served, or not all of one; Transient where
    it cannot be read.
    """
    first = _whole(path)
    info = _info(path, first.keys)
    later = [_whole(shard) for shard in _later_shards(path, info.shards)]
    tensors = [tensor for file in (first, *later) for tensor in file.tensors]
    scores = any(name in _HEAD for name, _ in tensors)
    return replace(info, scores=scores, layers=layers_of(tensors))


def check_whole(path: str) -> None:
    """Whether all bytes of a GGUF are there, whatever it is for. Raises as `read_header`."""
    _whole(path)


def data_bytes(path: str) -> int:
    """How many bytes follow the header. Raises as `read_header`."""
    return _whole(path).data_bytes


def _whole(path: str) -> _Whole:
    try:
        with open(path, "rb") as file:
            header = _Header(file)
            count, keys = _keys(header)
            end, tensors = _tensors(header, count)
            begin = _aligned(header.position, keys) if count else header.position
            needed = begin + end
            size = os.fstat(file.fileno()).st_size
    except OSError as exc:
        raise Transient(f"cannot read {path}: {exc.strerror}") from exc
    except _Malformed as exc:
        raise Rejected(f"cannot read {path}: {exc}") from exc
    if size < needed:
        raise Rejected(
            f"cannot read {path}: it is cut off: {size} of at least {needed} bytes are there"
        )
    return _Whole(keys=keys, tensors=tensors, data_bytes=size - begin)


def _later_shards(path: str, count: int) -> Iterator[str]:
    match = _SHARD.fullmatch(path)
    if match is not None and int(match[2]) == 1 and int(match[3]) == count:
        for number in range(2, count + 1):
            yield f"{match[1]}-{number:05}-of-{count:05}.gguf"


class _Malformed(Exception):
    """What is wrong with the header, as a clause."""


class _Header:
    """The file's beginning, read as far as it is asked for."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._bytes = bytearray()
        self._position = 0

    @property
    def position(self) -> int:
        return self._position

    def scalar(self, form: struct.Struct) -> int | float | bool:
        value: int | float | bool = form.unpack_from(self._bytes, self._take(form.size))[0]
        return value

    def count(self) -> int:
        value: int = _U64.unpack_from(self._bytes, self._take(8))[0]
        return value

    def kind(self) -> int:
        value: int = _U32.unpack_from(self._bytes, self._take(4))[0]
        return value

    def raw(self, size: int) -> bytes:
        start = self._take(size)
        return bytes(self._bytes[start : start + size])

    def text(self) -> str:
        return self.raw(self.count()).decode("utf-8", "replace")

    def skip(self, size: int) -> None:
        self._take(size)

    def skip_texts(self, count: int) -> None:
        """A vocabulary has hundreds of thousands: no call for each."""
        position, have, length_at = self._position, len(self._bytes), _U64.unpack_from
        for _ in range(count):
            if position + 8 > have:
                have = self._fill(position + 8)
            position += 8 + length_at(self._bytes, position)[0]
        self._fill(position)
        self._position = position

    def _take(self, size: int) -> int:
        """Step over that many bytes, once they are there; returns where they begin."""
        start = self._position
        self._fill(start + size)
        self._position = start + size
        return start

    def _fill(self, end: int) -> int:
        """Read at least as far as `end`; returns how far."""
        if end > HEADER_LIMIT_BYTES:
            raise _Malformed(f"its header claims more than {HEADER_LIMIT_BYTES >> 20} MiB")
        while len(self._bytes) < end:
            block = self._file.read(_BLOCK_BYTES)
            if not block:
                raise _Malformed("truncated header")
            self._bytes += block
        return len(self._bytes)


def _keys(header: _Header) -> tuple[int, dict[str, Value]]:
    """The number of tensors, and the keys."""
    if header.raw(4) != b"GGUF":
        raise _Malformed("not a GGUF file")
    version = header.kind()
    if version not in (2, 3):
        raise _Malformed(f"GGUF version {version} is not known")
    tensors, count = header.count(), header.count()
    if count > _KEYS_LIMIT:
        raise _Malformed(f"its header claims {count} keys")
    if tensors > _TENSORS_LIMIT:
        raise _Malformed(f"its header claims {tensors} tensors")
    return tensors, dict(_entries(header, count))


def _entries(header: _Header, count: int) -> Iterator[tuple[str, Value]]:
    for _ in range(count):
        key = header.text()
        kind = header.kind()
        if kind == _ARRAY:
            _skip_array(header)
        elif kind == _STRING:
            yield key, header.text()
        else:
            yield key, header.scalar(_scalar(kind))


def _tensors(header: _Header, count: int) -> tuple[int, tuple[tuple[bytes, int], ...]]:
    """Where the data of the last one ends, in bytes after the header, and how large each is.

    llama.cpp refuses a tensor that ends behind the file, too, but only while it loads.
    """
    end, found = 0, []
    for _ in range(count):
        name = header.raw(header.count())
        dimensions = header.kind()
        if dimensions > _DIMENSIONS_LIMIT:
            raise _Malformed(f"its header has a tensor of {dimensions} dimensions")
        shape = [header.count() for _ in range(dimensions)]
        kind, offset = header.kind(), header.count()
        size = tensor_bytes(kind, shape)
        found.append((name, size))
        end = max(end, offset + size)
    return end, tuple(found)


def _aligned(position: int, keys: dict[str, Value]) -> int:
    alignment = max(_number(keys, "general.alignment") or _ALIGNMENT, 1)
    return -(-position // alignment) * alignment


def _skip_array(header: _Header) -> None:
    kind, count = header.kind(), header.count()
    if kind == _STRING:
        header.skip_texts(count)
    else:
        header.skip(count * _scalar(kind).size)


def _scalar(kind: int) -> struct.Struct:
    if kind not in _SCALARS:
        raise _Malformed(f"its header has a value of the unknown type {kind}")
    return _SCALARS[kind]


def _info(path: str, keys: dict[str, Value]) -> ModelInfo:
    architecture = _text(keys, "general.architecture")
    shard, shards = _number(keys, "split.no") or 0, _number(keys, "split.count") or 1
    if shard > 0:
        raise Rejected(f"cannot read {path}: it is shard {shard + 1} of {shards}, not the first")
    if architecture is None:
        raise Rejected(f"cannot read {path}: it names no architecture, so it is not a model")
    kind = _text(keys, "general.type")
    if architecture == "clip" or kind in ("adapter", "mmproj"):
        what = "an adapter" if kind == "adapter" else "a multimodal projector"
        raise Rejected(f"cannot read {path}: it is {what}, not a model")
    pooling = _number(keys, f"{architecture}.pooling_type")
    return ModelInfo(
        architecture=architecture,
        kind=kind,
        name=_text(keys, "general.name"),
        context_length=_number(keys, f"{architecture}.context_length"),
        embedding_length=_number(keys, f"{architecture}.embedding_length"),
        block_count=_number(keys, f"{architecture}.block_count"),
        pooling=None if pooling is None else _POOLING.get(pooling),
        causal=keys.get(f"{architecture}.attention.causal") is not False,
        kv_bytes_per_token=gguf_kv_bytes(keys),
        windows=gguf_windows(keys),
        shards=shards,
    )


def _text(keys: dict[str, Value], key: str) -> str | None:
    value = keys.get(key)
    return value if isinstance(value, str) else None


def _number(keys: dict[str, Value], key: str) -> int | None:
    value = keys.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else None
