"""Which of two a model is to be: as the manifest has it, or as it last was good (R7)."""

from dataclasses import dataclass, replace

from reconciler.plan.desired import DesiredModel, ModelSpec, OnFailure
from reconciler.plan.ids import FilesDigest, GpuUuid, Instance, SpecHash


@dataclass(frozen=True, slots=True, kw_only=True)
class LastGood:
    """The instance of a model that was loaded last. `spec`: with `digest` pinned to the revision
    that it ran with, where the hub has revisions. `gpus`: what it had."""

    spec: ModelSpec
    spec_hash: SpecHash
    files_digest: FilesDigest
    gpus: tuple[GpuUuid, ...] = ()

    @property
    def instance(self) -> Instance:
        return Instance(spec_hash=self.spec_hash, files_digest=self.files_digest)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why what the manifest wants is not to be had. `due`: when it is to be tried again; None: once
    something changes. `costly`: what was good was stopped for it."""

    reason: str
    due: float | None = None
    costly: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """`runs`: the instances that live, or are being started; `loads`: those of them that do not
    serve yet. `reverted`: whether the last good one was the choice before."""

    wanted: DesiredModel
    files_digest: FilesDigest | None
    last_good: LastGood | None
    trouble: Trouble | None
    runs: frozenset[Instance] = frozenset()
    loads: frozenset[Instance] = frozenset()
    reverted: bool = False


def reverts(now: Situation, at: float) -> bool:
    """Whether it is to be the last good one.

    While that serves, and the trouble of the other cost it nothing, there is nothing to revert. It
    gets the time that it needs to load before the other one is tried again.
    """
    wanted, good, trouble = now.wanted, now.last_good, now.trouble
    if good is None or trouble is None or not may_revert(wanted):
        return False
    if _is_wanted_itself(now, good) or any(is_wanted(now, each) for each in now.runs):
        return False
    if trouble.due is not None and at >= trouble.due:
        return now.reverted and good.instance in now.loads
    return now.reverted or trouble.costly or not now.runs


def may_revert(wanted: DesiredModel) -> bool:
    return wanted.enabled and wanted.keep_last_good and wanted.on_failure is OnFailure.REVERT


def is_wanted(now: Situation, instance: Instance) -> bool:
    """Whether this is what the manifest wants, as far as one can know."""
    if instance.spec_hash != now.wanted.spec_hash:
        return False
    return now.files_digest is None or instance.files_digest == now.files_digest


def _is_wanted_itself(now: Situation, good: LastGood) -> bool:
    pinned = (now.wanted.spec.digest or "").removeprefix("sha256:")
    if now.files_digest is None and pinned and good.spec.digest is not None:
        return good.spec_hash == now.wanted.spec_hash and good.spec.digest == pinned
    return is_wanted(now, good.instance)


def reverted(wanted: DesiredModel, good: LastGood) -> DesiredModel:
    """The model with its last good spec; names, limits and times are as the manifest has them.

    Its checks are not asked: it was good by those of its time, and new ones may be what is wrong.
    """
    return replace(
        wanted,
        checks=(),
        spec=good.spec,
        spec_hash=good.spec_hash,
        fallback=None,
        stands_in_for=None,
        instead_of=wanted.spec_hash,
    )
