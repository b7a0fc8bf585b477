"""Names of things, as types that do not mix."""

from dataclasses import dataclass
from typing import NewType

ModelName = NewType("ModelName", str)
NodeName = NewType("NodeName", str)
SpecHash = NewType("SpecHash", str)
"""`<version>:<hex>` over what reaches the process from the manifest (`plan.spec_hash`)."""
FilesDigest = NewType("FilesDigest", str)
"""sha256 in hex over a model's chosen files (design §6)."""
Nonce = NewType("Nonce", str)
"""Random hex, one per spawn; it stands in the environment of every process of that spawn."""
GpuUuid = NewType("GpuUuid", str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """What is restarted when it changes: one spec over one set of files."""

    spec_hash: SpecHash
    files_digest: FilesDigest


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where something stands in the manifest. `line` and `column` count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"
