"""The types of single values: durations, sizes, names, sources; each says what is wrong in words.

Every type carries its JSON schema, so that an editor knows what may be written.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BeforeValidator, GetCoreSchemaHandler, GetJsonSchemaHandler, WithJsonSchema
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from reconciler.manifest.problem import shown
from reconciler.plan.gpus import PCI_PATTERN, pci_address
from reconciler.plan.shares import SIZE, size_bytes
from reconciler.plan.span import SPAN, span_complaint, span_seconds

_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"
_ALIAS = r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}"
_NODE = r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?"
_ENV_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_FLAG = r"[A-Za-z][A-Za-z0-9_.-]*"
_GPU_PATTERN = r"[0-9]+|(?:[Gg][Pp][Uu]|[Mm][Ii][Gg])-[A-Za-z0-9-]+|(?:nvidia|amd):[0-9]+"
"""The last is what has neither a UUID nor an address (`Gpu.identity`)."""
_GPU = re.compile(_GPU_PATTERN)
_CONTROL = re.compile(r"[\x00-\x1f\x7f\\]")
_HF = r"hf://[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*(@[A-Za-z0-9._/-]+)?"


@dataclass(frozen=True, slots=True)
class Checked:
    """Annotates a string: `check` gives the complaint or None, `pattern` is for the JSON schema."""

    check: Callable[[str], str | None]
    pattern: str

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._validated, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {**handler(schema), "pattern": f"^({self.pattern})$"}

    def _validated(self, text: str) -> str:
        if complaint := self.check(text):
            raise ValueError(complaint)
        return text


def _matches(pattern: str, wish: str) -> Callable[[str], str | None]:
    compiled = re.compile(pattern)
    return lambda text: None if compiled.fullmatch(text) else f"must be {wish}, not {shown(text)}"


def _duration(value: object) -> float:
    seconds = None
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = float(value)
    elif isinstance(value, str):
        seconds = span_seconds(value)
    complaint = span_complaint(seconds)
    if seconds is None or complaint is not None:
        raise ValueError(f"{complaint}, not {shown(value)}")
    return seconds


def _limit(value: object) -> float:
    seconds = _duration(value)
    if seconds == 0:
        raise ValueError("must be more than 0")
    return seconds


def _gpu_memory(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1:
        return str(value)
    if isinstance(value, str) and size_bytes(value):
        return value
    raise ValueError(
        f"must be a share up to 1 such as 0.45, or a size such as 20GiB, not {shown(value)}"
    )


def _gpu_id(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return str(value)
    if isinstance(value, str) and (_GPU.fullmatch(value) or pci_address(value)):
        return value
    raise ValueError(
        "must be an index such as 0, a UUID such as GPU-8a56a4bc-… or MIG-…, or a PCI address "
        f"such as 0000:17:00.0, not {shown(value)}"
    )


def _size(value: object) -> int:
    if isinstance(value, str) and (found := size_bytes(value)) is not None:
        return found
    raise ValueError(f"must be a size such as 80GiB or 500GB, not {shown(value)}")


def _gpu_identity(text: str) -> str | None:
    if _GPU.fullmatch(text) and not text.isdigit():
        return None
    return f"must be a UUID such as GPU-8a56a4bc-… or MIG-…, not {shown(text)}"


def _pci(text: str) -> str | None:
    if pci_address(text):
        return None
    return f"must be a PCI address such as 0000:17:00.0, not {shown(text)}"


def is_list(value: object) -> str:
    """The tag of a value that may be written as one or as several."""
    return "<list>" if isinstance(value, list | tuple) else "<word>"


def node_name_complaint(text: str) -> str | None:
    if text == "all":
        return "'all' is not a node name; for every node write `nodes: all`"
    return _matches(_NODE, "a node name (letters, digits, '.', '_' and '-')")(text)


def _path_complaint(path: str) -> str | None:
    parts = path.split("/")
    if "" in parts:
        return f"must not begin or end with '/', or hold an empty part, not {shown(path)}"
    if "." in parts or ".." in parts:
        return f"must not hold '.' or '..', not {shown(path)}"
    if _CONTROL.search(path):
        return f"must not hold control characters or backslashes, not {shown(path)}"
    return None


def _file(text: str) -> str | None:
    if not text.endswith(".gguf"):
        return f"must be the name of a .gguf in the prefix, not {shown(text)}"
    return _path_complaint(text)


def _source(text: str) -> str | None:
    scheme, colon, rest = text.partition("://")
    if not colon:
        return _prefix_complaint(text)
    if scheme == "hf":
        wish = "hf://org/name or hf://org/name@revision"
        return _matches(_HF, wish)(text)
    if scheme == "file":
        if not rest.startswith("/"):
            return f"must be file:///absolute/path, not {shown(text)}"
        return _path_complaint(rest.lstrip("/").rstrip("/"))
    return (
        f"must be a prefix of the hub such as gguf/<org>_<name>, or file:///path, not {shown(text)}"
    )


def _prefix_complaint(text: str) -> str | None:
    if complaint := _path_complaint(text):
        return complaint
    parts = text.split("/")
    if text != text.strip():
        return f"must not begin or end with a blank, not {shown(text)}"
    if ":" in text or any(part.startswith(".") for part in parts):
        return f"must not hold ':' or parts that begin with '.', not {shown(text)}"
    if len(parts) == 2 and not text.endswith(".gguf"):
        return None
    if len(parts) > 2 and text.endswith(".gguf"):
        return None
    return (
        "must be a prefix of exactly two parts such as gguf/<org>_<name>, or one .gguf in it, "
        f"not {shown(text)}"
    )


def _absolute_path(text: str) -> str | None:
    if not text.startswith("/") or "\0" in text or ".." in text.split("/"):
        return f"must be an absolute path without '..', not {shown(text)}"
    return None


_DURATION_SCHEMA: dict[str, Any] = {
    "anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": f"^{SPAN}$"}],
    "examples": [90, "90s", "30m", "1h", "2d"],
}
_LIMIT_SCHEMA: dict[str, Any] = {
    **_DURATION_SCHEMA,
    "anyOf": [{"type": "number", "exclusiveMinimum": 0}, _DURATION_SCHEMA["anyOf"][1]],
}
_GPU_MEMORY_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        {"type": "string", "pattern": f"^{SIZE}$"},
    ],
    "examples": [0.45, "20GiB", "500GB"],
}
_GPU_ID_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "integer", "minimum": 0},
        {"type": "string", "pattern": rf"^(?:{_GPU_PATTERN}|\s*{PCI_PATTERN}\s*)$"},
    ],
    "examples": [0, "GPU-8a56a4bc-0000-0000-0000-000000000000", "0000:17:00.0"],
}

_SIZE_SCHEMA: dict[str, Any] = {
    "type": "string",
    "pattern": f"^{SIZE}$",
    "examples": ["80GiB", "500GB"],
}

Duration = Annotated[float, BeforeValidator(_duration), WithJsonSchema(_DURATION_SCHEMA)]
"""Seconds; 0 is allowed."""
Limit = Annotated[float, BeforeValidator(_limit), WithJsonSchema(_LIMIT_SCHEMA)]
"""Seconds, more than 0."""
GpuMemory = Annotated[str, BeforeValidator(_gpu_memory), WithJsonSchema(_GPU_MEMORY_SCHEMA)]
GpuId = Annotated[str, BeforeValidator(_gpu_id), WithJsonSchema(_GPU_ID_SCHEMA)]
Size = Annotated[int, BeforeValidator(_size), WithJsonSchema(_SIZE_SCHEMA)]
"""Bytes."""
GpuIdentity = Annotated[
    str,
    Checked(_gpu_identity, r"(?:[Gg][Pp][Uu]|[Mm][Ii][Gg])-[A-Za-z0-9-]+|(?:nvidia|amd):[0-9]+"),
]
PciAddress = Annotated[str, Checked(_pci, rf"\s*{PCI_PATTERN}\s*")]
Name = Annotated[str, Checked(_matches(_NAME, "1 to 100 letters, digits, '.', '_' and '-'"), _NAME)]
Alias = Annotated[
    str, Checked(_matches(_ALIAS, "1 to 200 letters, digits and any of . _ : / @ + -"), _ALIAS)
]
NodeName = Annotated[str, Checked(node_name_complaint, rf"(?!all$){_NODE}")]
EnvName = Annotated[
    str, Checked(_matches(_ENV_NAME, "a name of letters, digits and '_'"), _ENV_NAME)
]
Flag = Annotated[
    str,
    Checked(
        _matches(_FLAG, "a flag's long name without dashes in front, as in max_model_len"), _FLAG
    ),
]
Digest = Annotated[
    str,
    Checked(
        _matches(r"(sha256:)?[0-9a-f]{64}", "64 hex digits of a sha256"), "(sha256:)?[0-9a-f]{64}"
    ),
]
GgufFile = Annotated[str, Checked(_file, r"[^/].*\.gguf")]
Source = Annotated[
    str,
    Checked(_source, rf"[^/:]+/[^/:]+|[^/:]+/[^:]+\.gguf|{_HF}|file:///.+"),
]
AbsolutePath = Annotated[str, Checked(_absolute_path, "/.*")]
