"""Orders that the planner gives. Each carries a reason that an operator can read (R8)."""

from dataclasses import dataclass, field

from reconciler.plan.ids import GpuUuid, Instance, ModelName, Nonce, SpecHash
from reconciler.plan.memory import Needs
from reconciler.plan.phase import State


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchFiles:
    """Bring the model's files into the cache and verify them (R5: before any stop).

    `spec_hash`: with the digest that the manifest pins, if any.
    """

    model: ModelName
    spec_hash: SpecHash
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartBackend:
    """Spawn a backend for this instance on these devices."""

    model: ModelName
    instance: Instance
    gpus: tuple[GpuUuid, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopBackend:
    """Stop routing to this process, let its requests end (`drain`), then climb R10's ladder.

    `cause`: what of the reason holds until it has ended, whatever becomes of others. `failure`: set
    when the stop is itself a failure of the instance (not ready in time, say); the outcome is then
    recorded as one. `ran_seconds`: how long it had worked, loaded, before it came to hang; None:
    that is not the failure. `revocable`: another one serves in its place; should that one fail
    before the first signal of the stop, `KeepBackend` takes the stop back.
    """

    model: ModelName
    nonce: Nonce
    pid: int
    drain: bool
    reason: str
    cause: str
    failure: str | None = None
    ran_seconds: float | None = None
    revocable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepBackend:
    """Take back the stop of a process that still drains: it serves again. Where the first signal
    was sent meanwhile, nothing is done."""

    model: ModelName
    nonce: Nonce
    pid: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopLeftover:
    """Stop what an agent that is gone left behind."""

    model: ModelName
    nonce: Nonce
    pid: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortFetch:
    """Give up a download that nobody wants any more."""

    model: ModelName
    reason: str


OfOneProcess = StopBackend | KeepBackend | StopLeftover
Retraction = AbortFetch | KeepBackend
"""Takes back what is under way; all others begin something."""
Action = FetchFiles | StartBackend | StopBackend | KeepBackend | StopLeftover | AbortFetch


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The instance that is coming, beside the one that serves."""

    spec_hash: SpecHash
    state: State
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Draining:
    """A process beside the one that serves, or is to: it gets no new work, and ends. `since`: when
    its stop began; None: it has not yet. `loads`: it has never served, and was to."""

    nonce: Nonce
    pid: int
    spec_hash: SpecHash
    reason: str
    since: float | None = None
    loads: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What the plan says of one model: its state, why, and what is coming.

    `state` is that of the instance that serves; with nothing serving, the newest instance's.
    `process`: the one that it is of; None: none lives. `left_pid`: then, of what an earlier agent
    left of it and is stopped first. `coming`: the one that is to take its place.
    `asked_again`: that one served an earlier agent, and has not answered this one yet.
    `needs`: of memory, by the spec that is wanted. `download_bytes`: what has to be fetched for it.
    """

    model: ModelName
    state: State
    reason: str
    process: Nonce | None = None
    left_pid: int | None = None
    asked_again: bool = False
    coming: Nonce | None = None
    draining: tuple[Draining, ...] = ()
    target: Target | None = None
    retry_at: float | None = None
    needs: Needs = field(default_factory=dict)
    download_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Actions in the order in which they are dispatched, and one outlook per model.

    `next_at`: when the plan changes by time alone (a retry, a deadline); None: never. `staying`:
    what finds no memory beside its predecessor on the GPUs to spare, and is to take its place.
    """

    actions: tuple[Action, ...] = ()
    outlook: tuple[Outlook, ...] = ()
    next_at: float | None = None
    notes: tuple[str, ...] = field(default=())
    """Waits that concern the node as a whole, for the status."""
    staying: frozenset[tuple[ModelName, Instance]] = frozenset()
    held: tuple[Action, ...] = ()
    """What would be begun, and a rail holds back (`rails`): not one of `actions`."""
