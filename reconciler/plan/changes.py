"""What a manifest would change on a node, as values: of a plan that is shown before it comes."""

from dataclasses import dataclass, field
from enum import StrEnum

from reconciler.plan.balance import Balance
from reconciler.plan.desired import Elsewhere
from reconciler.plan.ids import GpuUuid, ModelName, NodeName
from reconciler.plan.memory import Needs
from reconciler.plan.phase import State


class Verb(StrEnum):
    """SURGE: a restart whose new process is there before the old one goes."""

    START = "start"
    RESTART = "restart"
    SURGE = "surge"
    REROUTE = "reroute"
    STOP = "stop"
    REFUSED = "refused"
    UNCHANGED = "unchanged"


CHANGING = frozenset({Verb.START, Verb.RESTART, Verb.SURGE, Verb.REROUTE, Verb.STOP})
STARTING = frozenset({Verb.START, Verb.RESTART, Verb.SURGE})


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldChange:
    """`old` or `new` None: not written."""

    path: str
    old: object
    new: object


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What happens to one model. `state`: as it is now; None: it is not there.

    `engine`: what is to be said of it; None: nothing.
    `fetch`: the files come from the hub first; None: nothing is said of them. `fallback`: what is
    taken where no backend can run `source`. `needs`: of memory; none: not known.
    `download_bytes`: of what is fetched; None: not known. `download_with`: whose download brings
    its files too; None: its own does. `cached_bytes`: of its files, what is
    here already; None: not known. `downtime_seconds`: for how long nothing of it is expected to
    serve; 0.0: always something does; None: not known. `ready_seconds`: until what is started
    serves, its download counted; None: nothing is, or that is not known. `held`: why a rail holds
    it back; None: none does.
    """

    model: ModelName
    verb: Verb
    reason: str
    state: State | None = None
    fields: tuple[FieldChange, ...] = ()
    fetch: bool | None = None
    source: str | None = None
    fallback: str | None = None
    engine: str | None = None
    needs: Needs = field(default_factory=dict)
    download_bytes: int | None = None
    download_with: ModelName | None = None
    cached_bytes: int | None = None
    downtime_seconds: float | None = None
    ready_seconds: float | None = None
    held: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evicted:
    """What would leave the cache to make room. `revision`: the digest of all of its prefix."""

    prefix: str
    revision: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One action of those ahead, in their order. `kind`: the action's name; `gpus`: those that it
    starts on."""

    kind: str
    model: ModelName
    reason: str
    gpus: tuple[GpuUuid, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeChanges:
    """All models of one node, sorted by name. `notes`: what holds up the node as a whole. `gpus`:
    those whose memory is told; `host`: None: its memory is not told. `order`: what would be done,
    in its order. `errors`: for which the newest revision is not in force, as lines. `unasked`: why
    the node could not be asked, so that all else is empty; None: it was."""

    node: NodeName
    changes: tuple[Change, ...]
    elsewhere: tuple[Elsewhere, ...] = ()
    notes: tuple[str, ...] = field(default=())
    gpus: tuple[Balance, ...] = ()
    host: Balance | None = None
    order: tuple[Planned, ...] = ()
    evictions: tuple[Evicted, ...] = ()
    errors: tuple[str, ...] = ()
    unasked: str | None = None

    def count(self, verb: Verb) -> int:
        return sum(change.verb is verb for change in self.changes)
