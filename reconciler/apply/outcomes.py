"""What effects report back, in the past tense; the loop books them at its next tick."""

from dataclasses import dataclass

from reconciler.plan.ids import FilesDigest, ModelName, Nonce, SpecHash


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesFetched:
    """`size_bytes`: what came from the hub for it."""

    model: ModelName
    spec_hash: SpecHash
    seconds: float
    size_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendStopped:
    """`failure`: the stop was itself a failure of the instance, for this reason. `ran_seconds`: as
    in `StopBackend`. `drain_seconds`, `stop_seconds`: how long it took, of one that had served;
    None: of others."""

    model: ModelName
    nonce: Nonce
    failure: str | None = None
    ran_seconds: float | None = None
    drain_seconds: float | None = None
    stop_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectFailed:
    """`during`: "fetch", "start" or "stop". `permanent`: no use in trying again as things are.

    `damaged`: until the hub holds something else. `shortage`: for what the node lacks just now.
    `own_files_in_the_way`: for want of room, which the files that the model runs with would make.
    """

    model: ModelName
    spec_hash: SpecHash
    files_digest: FilesDigest | None
    during: str
    reason: str
    permanent: bool
    damaged: bool = False
    shortage: bool = False
    own_files_in_the_way: bool = False
    retry_after_seconds: float | None = None


Outcome = FilesFetched | BackendStopped | EffectFailed
