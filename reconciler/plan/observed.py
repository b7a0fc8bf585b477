"""What is really there on one node, in-flight work included (R6): the planner's other input.

Times are seconds of one monotonic clock, the same that gives the planner its `now`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from reconciler.plan.desired import Format
from reconciler.plan.ids import FilesDigest, GpuUuid, Instance, ModelName, Nonce, SpecHash
from reconciler.plan.maintenance import Maintenance
from reconciler.plan.memory import Needs, Pool, Room

CRASHES_OF_A_LOOP = 3
"""In a row; `Failure` says what a row is."""


class ProcessPhase(StrEnum):
    LOADING = "loading"
    LOADED = "loaded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hang:
    """That a loaded backend does nothing any more. `since`: its last progress."""

    reason: str
    since: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """How this agent came to a process that an earlier one has started (R9). `at`: since when it
    asks whether it serves. `was_loaded`: it had loaded under that agent."""

    at: float
    was_loaded: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedProcess:
    """A backend of ours that is alive. `loaded_at` is None until it answered (design §8, Ready).

    `gpu_share`: of each of its `gpus`; None: the whole. `misplaced`: on which GPU it was found that
    it was not given; None: on none. `hung`: None: it works, for all that is known. `adopted`: None:
    this agent has started it.
    `reads_removed_files`: it has files open, or mapped, that have gone from the cache since.
    `held`: bytes of each memory that come back when it ends; none where nobody has asked.
    `failed_check`: which, and how; None: none has failed. `died`: its first process, unasked; who
    is left of it is being ended, and then its exit is told. `lacks`: to be loaded, as a clause.
    """

    nonce: Nonce
    pid: int
    instance: Instance
    started_at: float
    loaded_at: float | None = None
    gpus: tuple[GpuUuid, ...] = ()
    gpu_share: float | None = None
    misplaced: str | None = None
    hung: Hang | None = None
    reads_removed_files: bool = False
    held: Mapping[Pool, int] = field(default_factory=dict)
    failed_check: str | None = None
    adopted: Adoption | None = None
    died: bool = False
    lacks: str = ""

    @property
    def phase(self) -> ProcessPhase:
        return ProcessPhase.LOADING if self.loaded_at is None else ProcessPhase.LOADED

    @property
    def loads(self) -> bool:
        """Whether it takes a load slot and more memory: what was loaded once only has to answer."""
        return self.loaded_at is None and not self.was_loaded

    @property
    def was_loaded(self) -> bool:
        """Under an agent before this one."""
        return self.adopted is not None and self.adopted.was_loaded

    @property
    def is_asked(self) -> bool:
        """Whether it still serves: it has not answered this agent yet."""
        return self.loaded_at is None and self.was_loaded

    @property
    def is_sound(self) -> bool:
        """Neither dead nor hanging, for all that is known."""
        return not self.died and self.hung is None

    @property
    def awaited_since(self) -> float:
        """From when its time to get ready counts."""
        return self.started_at if self.adopted is None else self.adopted.at

    @property
    def doing(self) -> str:
        """In words."""
        if self.died:
            return f"has died (pid {self.pid})"
        if self.loaded_at is not None:
            return f"serves (pid {self.pid})"
        if self.was_loaded:
            return f"is asked whether it still serves (pid {self.pid}, of an earlier agent)"
        return f"loads (pid {self.pid})"


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesMissing:
    """The model's files are not in the cache: they must be fetched."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesCached:
    """The model's files are published in the cache (or in place, for `file://`).

    `path`: what the engine is given (the first GGUF shard, or a folder). `root`: the folder that
    `@/` in `extra_args` means. `mmproj`: the multimodal projector beside a GGUF. `revision`: the
    digest of all of the prefix, what `digest:` pins; None for `file://`. `verified`: a catalog
    told the contents. `former`: the digest of the same bytes before there was a catalog.
    """

    digest: FilesDigest
    path: str
    root: str
    format: Format
    mmproj: str | None = None
    size_bytes: int = 0
    revision: FilesDigest | None = None
    verified: bool = False
    former: FilesDigest | None = None


FilesState = FilesMissing | FilesCached


@dataclass(frozen=True, slots=True, kw_only=True)
class Push:
    """What the hub holds of a model instead of what is here. `revision`: of all of the prefix.

    `verified`: a catalog names it; without one, it may be half of what somebody is copying there.
    `damaged`: what was said of a file of it that is not what the hub says; None: nothing was.
    """

    digest: FilesDigest
    revision: FilesDigest
    verified: bool
    damaged: str | None = None


class EffectKind(StrEnum):
    FETCH = "fetch"
    START = "start"
    STOP = "stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """The one effect that is under way for a model. `detail`: for operators: the progress of a
    fetch, the cause of a stop.

    `gpus`: the devices that a start has taken, `gpu_share` of each (None: the whole). `nonce`: the
    process that a stop ends; None: the one of `spec_hash`. `pid`: its pid. `aborting`: a fetch that
    was told to give up, or a stop that was taken back, and has not ended yet. `revocable`: a stop
    that can be taken back: another one served in its place, and no signal was sent yet.
    """

    kind: EffectKind
    spec_hash: SpecHash
    since: float
    detail: str = ""
    gpus: tuple[GpuUuid, ...] = ()
    gpu_share: float | None = None
    nonce: Nonce | None = None
    pid: int | None = None
    aborting: bool = False
    revocable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The last failure of one instance; it counts only for that instance.

    `files_digest` is None where the failure came before the files were known.
    `count`: failures in a row. `permanent`: no further try until something changes (R7).
    `during`: "fetch", "start" (before the process was there), "load", "run", or "stop".
    `ever_loaded`: this instance was loaded here once. `damaged`: what the hub holds is not what it
    says, which ends when the hub holds something else. `own_files_in_the_way`: there was no room
    for a download, and would be without the files that the model runs with. `costly`: a try of it
    stops what was good before it; `costly_tries`: how many of the row that was true of.
    `shortage`: for what the node lacks just now, such as room on a disk: it says nothing of the
    instance, never blocks it, and is none of the `costly_tries`. `exited`: a process ended, and
    nobody had asked it to. `earlier`: other reasons in the same row, the newest first.
    """

    spec_hash: SpecHash
    files_digest: FilesDigest | None
    at: float
    count: int
    reason: str
    during: str
    permanent: bool = False
    damaged: bool = False
    own_files_in_the_way: bool = False
    ever_loaded: bool = False
    costly: bool = False
    costly_tries: int = 0
    shortage: bool = False
    exited: bool = False
    earlier: tuple[str, ...] = ()
    retry_after_seconds: float | None = None

    @property
    def is_crash_loop(self) -> bool:
        return self.exited and self.count >= CRASHES_OF_A_LOOP


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedModel:
    """What is there of one model. `files`, `refusal` and `hindrance` speak of the desired spec.

    `refusal`: why nothing on this node can run that spec as it stands (no backend, a refused flag);
    `hindrance`: why it cannot be started just now (a secret's file is missing). Both are found
    without starting anything, so they never cost what serves. None: nothing speaks against it.
    `unknown`: what has to be known before it can be planned, and is being asked; None: nothing.
    `unoffered`: the same, before its files are fetched. `needs`: of memory. `download_bytes`: of
    files that are not here; None: not known. `gives_way`: who else claims the GPUs of what was last
    good, as a sentence; None: nobody does. `resuming`: we have stopped its process, not for a
    failure, and started no other since.
    """

    name: ModelName
    processes: tuple[ObservedProcess, ...] = ()
    files: FilesState = field(default_factory=FilesMissing)
    refusal: str | None = None
    hindrance: str | None = None
    unknown: str | None = None
    unoffered: str | None = None
    needs: Needs = field(default_factory=dict)
    download_bytes: int | None = None
    gives_way: str | None = None
    resuming: bool = False
    in_flight: InFlight | None = None
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leftover:
    """What an agent before this one left behind, and cannot be adopted. `why`: as a clause."""

    nonce: Nonce
    model: ModelName
    pid: int
    why: str = ""
    gpus: tuple[GpuUuid, ...] = ()
    stopping: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """Everything the planner may know. A model without an entry has nothing here.

    `processes_read`: the first complete look at the processes is done (R3). `engines_known`: the
    engines were asked what they are. `engines_failure`: why they could not be, as a clause.
    `max_parallel_loads`: how many backends may load at a time. `rooms`: the memories that models
    run in; of one that is not there nobody knows, and nothing is refused for it. `maintenance`:
    of its windows; None: there are none, and what serves may be stopped at any time.
    """

    processes_read: bool
    engines_known: bool = True
    engines_failure: str | None = None
    models: Mapping[ModelName, ObservedModel] = field(default_factory=dict)
    leftovers: tuple[Leftover, ...] = ()
    max_parallel_loads: int = 2
    rooms: Mapping[Pool, Room] = field(default_factory=dict)
    maintenance: Maintenance | None = None
