"""What is there, as the planner wants it: processes, effects under way, files, engines."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from reconciler.apply.backends import BackendView
from reconciler.backend.engines import Assessment
from reconciler.loop.books import Books
from reconciler.loop.memory import Memory
from reconciler.loop.offered import Offered
from reconciler.plan.desired import DesiredModel
from reconciler.plan.gpu_claims import Claim
from reconciler.plan.ids import FilesDigest, Instance, ModelName, Nonce
from reconciler.plan.maintenance import Maintenance
from reconciler.plan.memory import Pool
from reconciler.plan.observed import (
    Failure,
    FilesCached,
    FilesMissing,
    Hang,
    InFlight,
    Leftover,
    Observed,
    ObservedModel,
    ObservedProcess,
)

Views = Mapping[ModelName, tuple[BackendView, ...]]
ON_CPU = Claim()
_NOT_ASKED = Offered()


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """Why the values that a model's `env` refers to cannot be had; both None: they can.

    `refusal`: for as long as the agent lives; `hindrance`: just now.
    """

    refusal: str | None = None
    hindrance: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What one desired model's files, engines and secrets say, asked once a tick.

    `offered`: what the hub says of it before its files are here. `hint`: what would help where
    nothing here can run it, as a clause.
    """

    desired: DesiredModel
    files: FilesCached | None
    assessment: Assessment
    claim: Claim = ON_CPU
    offered: Offered = _NOT_ASKED
    secrets: Secrets = Secrets()
    hint: str | None = None

    @property
    def refusal(self) -> str | None:
        refusal = self.claim.refusal or self.assessment.refusal or self.secrets.refusal
        return f"{refusal}; {self.hint}" if refusal and self.hint else refusal

    @property
    def wanted(self) -> Instance | None:
        """None while its files are not here."""
        if self.files is None:
            return None
        return Instance(spec_hash=self.desired.spec_hash, files_digest=self.files.digest)

    def still_holds(
        self,
        model: DesiredModel,
        files: FilesCached | None,
        claim: Claim,
        offer: Offered,
    ) -> bool:
        """Whether asking again would give an equal look."""
        return (
            self.assessment.lasting
            and self.offered == offer
            and (self.claim is claim or self.claim == claim)
            and (self.desired is model or self.desired == model)
            and (self.files is files or self.files == files)
        )


Looks = Mapping[ModelName, Look]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What lives and what is under way, at one moment of the event loop.

    `reads_removed`: processes that have files open which have gone from the cache since. `hung`:
    those that do nothing any more. `engines_failure`: see `Inventory`.
    """

    views: Views
    in_flight: Mapping[ModelName, InFlight]
    leftovers: tuple[Leftover, ...]
    reads_removed: frozenset[Nonce] = frozenset()
    hung: Mapping[Nonce, Hang] = field(default_factory=dict)
    engines_failure: str | None = None

    @property
    def names(self) -> frozenset[ModelName]:
        """Of models that something is there of, or under way for."""
        left = (each.model for each in self.leftovers)
        return frozenset((*self.views, *self.in_flight, *left))

    @property
    def sound(self) -> Views:
        """All but those: what may stay as it is, for its files."""
        if not self.reads_removed:
            return self.views
        return {
            name: tuple(view for view in views if view.nonce not in self.reads_removed)
            for name, views in self.views.items()
        }


def observed(
    seen: Seen,
    looks: Looks,
    books: Books,
    memory: Memory | None,
    *,
    misplaced: Mapping[Nonce, str],
    max_parallel_loads: int,
    engines_known: bool = True,
    maintenance: Maintenance | None = None,
) -> Observed:
    """Everything that the planner may know. `misplaced`: see `Gpus`."""
    judged = _Judged(held=memory.held if memory is not None else {}, misplaced=misplaced)
    names = looks.keys() | seen.names
    return Observed(
        processes_read=True,
        engines_known=engines_known,
        engines_failure=seen.engines_failure,
        models={name: seen_of(name, seen, looks.get(name), books, judged) for name in names},
        leftovers=seen.leftovers,
        max_parallel_loads=max_parallel_loads,
        rooms=memory.rooms if memory is not None else {},
        maintenance=maintenance,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """What was found out about processes: bytes of memory, and GPUs that they were not given."""

    held: Mapping[Nonce, Mapping[Pool, int]] = field(default_factory=dict)
    misplaced: Mapping[Nonce, str] = field(default_factory=dict)


def seen_of(
    name: ModelName, seen: Seen, look: Look | None, books: Books, judged: _Judged = _Judged()
) -> ObservedModel:
    """What the planner may know of one model."""
    files = look.files if look else None
    failure = books.stuck(name)
    if failure is None and look is not None:
        failure = books.failure_of(look.desired, files)
    return ObservedModel(
        name=name,
        processes=tuple(
            ObservedProcess(
                nonce=view.nonce,
                pid=view.pid,
                instance=replace(
                    view.instance, files_digest=_known_as(view.instance.files_digest, files)
                ),
                started_at=view.started_at,
                loaded_at=view.loaded_at,
                gpus=view.gpus,
                gpu_share=view.launch.gpu_share,
                misplaced=judged.misplaced.get(view.nonce),
                hung=seen.hung.get(view.nonce),
                reads_removed_files=view.nonce in seen.reads_removed,
                held=judged.held.get(view.nonce, {}),
                failed_check=view.failed_check,
                adopted=view.adopted,
                died=view.died,
                lacks="" if view.stopping else view.progress,
            )
            for view in seen.views.get(name, ())
        ),
        files=files or FilesMissing(),
        refusal=look.refusal if look else None,
        hindrance=look.secrets.hindrance if look else None,
        unknown=look.claim.unknown if look else None,
        unoffered=look.offered.unoffered if look else None,
        needs=look.assessment.needs if look else {},
        download_bytes=look.offered.size_bytes if look else None,
        gives_way=look.claim.refusal if look and look.desired.instead_of else None,
        resuming=books.resuming(name),
        in_flight=seen.in_flight.get(name),
        failure=_of_these_files(failure, files) if failure is not None else None,
    )


def is_run_by(look: Look, view: BackendView) -> bool:
    """Whether this is what is wanted, for all that is known of the files."""
    return runs(look.desired, look.files, view)


def runs(model: DesiredModel, files: FilesCached | None, view: BackendView) -> bool:
    """Whether this is what is wanted, as far as one can know."""
    instance = view.instance
    if instance.spec_hash != model.spec_hash:
        return False
    return files is None or _known_as(instance.files_digest, files) == files.digest


def _known_as(digest: FilesDigest, files: FilesCached | None) -> FilesDigest:
    """A catalog gave the same bytes another digest: that is no other instance (R4)."""
    return files.digest if files is not None and files.former == digest else digest


def _of_these_files(failure: Failure, files: FilesCached | None) -> Failure:
    if failure.files_digest is None:
        return failure
    return replace(failure, files_digest=_known_as(failure.files_digest, files))
