"""What a hub tells of a model before its files are here, as a value (PURE)."""

from dataclasses import dataclass

from reconciler.backend.model_info import ModelInfo
from reconciler.plan.desired import Format, ModelSpec
from reconciler.plan.ids import FilesDigest


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """`size_bytes`: of all files that would be fetched; `weights_bytes` of them are loaded.
    `mmproj`: the projector among them. `info`: what the catalog says, where there is one.
    `files_digest`: of those files; `revision`: of all of the prefix."""

    format: Format
    size_bytes: int
    weights_bytes: int
    mmproj: str | None = None
    info: ModelInfo
    files_digest: FilesDigest | None = None
    revision: FilesDigest | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSays:
    """What a hub said when it was asked. `spec`: of which; None: of any. `offer`: None: nothing.

    `missing`: why a fetch would fail, in its words; None: it would not, or the hub did not say.
    `is_final`: for good, until the manifest changes.
    """

    spec: ModelSpec | None = None
    offer: Offer | None = None
    missing: str | None = None
    is_final: bool = False
