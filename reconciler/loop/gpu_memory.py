"""What is free on GPUs, what models hold of it, and who else does, by the newest survey.

What a model held may come back a while after its last process has ended: a driver takes its time,
and a survey from before tells nothing of it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace

from reconciler.apply.held import BackendView
from reconciler.backend.environment import NONCE_VARIABLE
from reconciler.observe.processes import environment_value, read_process
from reconciler.plan.gpu_claims import named
from reconciler.plan.gpus import Gpu, GpuProcess
from reconciler.plan.ids import GpuUuid, Instance, ModelName, Nonce
from reconciler.plan.memory import Pool, Room, User, pool_of

BACK_SECONDS = 15.0
"""For the memory of what has ended to come back, before who holds it is told."""
_WORTH_NAMING_BYTES = 1 << 30

Families = Mapping[Nonce, tuple[int, ...]]
"""The pids of each backend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A backend that was on a GPU until `at` (it was seen no more)."""

    model: ModelName
    pid: int
    at: float

    def __str__(self) -> str:
        return f"{self.model} (pid {self.pid})"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuFigures:
    """`devices`: as the newest survey has them, which began at `began`. `own_pids`: see `Surveyed`.
    `left`: who was on each of them last. `replaced`: since when each is to be given to another form
    of the model that runs on it. `now`: on the same clock."""

    devices: tuple[Gpu, ...] = ()
    began: float = 0.0
    own_pids: bool = True
    left: Mapping[GpuUuid, tuple[Left, ...]] = field(default_factory=dict)
    replaced: Mapping[GpuUuid, float] = field(default_factory=dict)
    now: float = 0.0


class Departures:
    """Who left which GPU, and when."""

    def __init__(self) -> None:
        self._present: Mapping[Nonce, tuple[ModelName, int, tuple[GpuUuid, ...]]] = {}
        self._left: dict[GpuUuid, tuple[Left, ...]] = {}

    def copy(self) -> "Departures":
        other = copy(self)
        other._left = dict(self._left)
        return other

    def see(
        self, present: Mapping[Nonce, tuple[ModelName, int, tuple[GpuUuid, ...]]], now: float
    ) -> None:
        """Of each backend that is there: its model, its pid, its GPUs."""
        for nonce in self._present.keys() - present.keys():
            model, pid, gpus = self._present[nonce]
            for gpu in gpus:
                self._left[gpu] = (*self._left.get(gpu, ()), Left(model=model, pid=pid, at=now))
        self._present = present

    def since(self, moment: float) -> Mapping[GpuUuid, tuple[Left, ...]]:
        """Those that left after it; the others are forgotten."""
        kept = {
            gpu: tuple(each for each in left if each.at >= moment)
            for gpu, left in self._left.items()
        }
        self._left = {gpu: left for gpu, left in kept.items() if left}
        return dict(self._left)


class Successions:
    """Since when instances are to take the place of others that run: nothing is stopped by what was
    free before."""

    def __init__(self) -> None:
        self._since: Mapping[tuple[ModelName, Instance], float] = {}

    def see(
        self, successors: Mapping[tuple[ModelName, Instance], Sequence[Gpu]], now: float
    ) -> Mapping[GpuUuid, float]:
        """The latest moment, of each GPU that they are to have."""
        self._since = {each: self._since.get(each, now) for each in successors}
        latest: dict[GpuUuid, float] = {}
        for each, devices in successors.items():
            for device in devices:
                before = latest.get(device.identity, self._since[each])
                latest[device.identity] = max(self._since[each], before)
        return latest


def gpu_rooms(
    figures: GpuFigures, families: Families, views: Iterable[BackendView]
) -> dict[Pool, Room]:
    """Of each GPU whose memory is told. For a thread: it reads /proc."""
    ours = frozenset(pid for pids in families.values() for pid in pids)
    fresh = [view for view in views if (view.loaded_at or 0.0) >= figures.began]
    return {
        pool_of(device): _room(device, figures, ours, fresh)
        for device in figures.devices
        if not device.unified and device.unusable is None and device.memory_total_bytes is not None
    }


def gpu_held(
    figures: GpuFigures, families: Families, views: Iterable[BackendView]
) -> dict[Nonce, dict[Pool, int]]:
    """By each backend. Where a driver does not tell it, what is used and nobody else's is theirs
    that have loaded: rather too much than too little."""
    held: dict[Nonce, dict[Pool, int]] = {}
    there = list(views)
    for device in figures.devices:
        on_it = [view for view in there if device.identity in view.gpus]
        told = {view.nonce: _told(device, figures, families.get(view.nonce, ())) for view in on_it}
        silent = [view for view in on_it if told[view.nonce] is None and view.loaded_at is not None]
        rest = _rest(device, figures) if not device.unified else 0
        for view in on_it:
            size = told[view.nonce]
            if size is None and view in silent:
                size = rest // len(silent)
            if size:
                held.setdefault(view.nonce, {})[pool_of(device)] = size
    return held


def _room(
    device: Gpu, figures: GpuFigures, ours: Collection[int], fresh: Iterable[BackendView]
) -> Room:
    """Where a driver tells no more than the total, all of it may be free, and nobody waits to hear.

    `fresh`: backends that have loaded since the survey, which has not seen all they hold.
    """
    free = device.memory_free_bytes
    others = [each for each in device.processes or () if each.pid not in ours]
    room = Room(
        total_bytes=device.memory_total_bytes or 0,
        free_bytes=free or 0,
        where=named(device),
        users=tuple(map(_user, _largest_first(others))) if figures.own_pids else (),
        untold=_untold(device, figures, others),
    )
    if free is None:
        return replace(room, free_bytes=room.total_bytes)
    left = figures.left.get(device.identity, ())
    unseen = [f"what {each} gave back" for each in left if each.at >= figures.began]
    unseen += [
        f"what {view.model} (pid {view.pid}) has taken"
        for view in fresh
        if device.identity in view.gpus
    ]
    if (wanted_at := figures.replaced.get(device.identity)) is not None:
        unseen += ["what is free there now"] if wanted_at >= figures.began else []
    unknown = f"{unseen[-1]} is being asked" if unseen else None
    return replace(room, unknown=unknown, returning=tuple(map(str, left)))


def _largest_first(processes: Sequence[GpuProcess]) -> list[GpuProcess]:
    return sorted(processes, key=lambda each: (-(each.memory_bytes or 0), each.pid))


def _user(process: GpuProcess) -> User:
    """Whose it is: who runs models for an agent carries a nonce, and passes it on."""
    found = read_process(process.pid)
    if found is None:
        who = "which has ended"
    elif environment_value(process.pid, NONCE_VARIABLE) is not None:
        who = f"{found.name}, a model of another agent"
    else:
        who = f"{found.name}, no model of ours"
    return User(pid=process.pid, who=who, held_bytes=process.memory_bytes)


def _untold(device: Gpu, figures: GpuFigures, others: Sequence[GpuProcess]) -> str | None:
    """Why who holds it cannot be named, as a clause."""
    if device.processes is None:
        return "its driver does not tell which processes hold it"
    if not figures.own_pids:
        pids = ", ".join(str(each.pid) for each in _largest_first(others))
        return f"its driver tells the machine's pids ({pids}), which this container does not see"
    if not device.processes and (device.memory_used_bytes or 0) >= _WORTH_NAMING_BYTES:
        return "its driver lists no process: in a container it may see none"
    return None


def _told(device: Gpu, figures: GpuFigures, pids: Collection[int]) -> int | None:
    """None: not told."""
    sizes = [each.memory_bytes for each in device.processes or () if each.pid in pids]
    if not figures.own_pids or not sizes or None in sizes:
        return None
    return sum(size for size in sizes if size is not None)


def _rest(device: Gpu, figures: GpuFigures) -> int:
    """What is used, and told to be nobody's."""
    told = device.processes or () if figures.own_pids else ()
    return max((device.memory_used_bytes or 0) - sum(each.memory_bytes or 0 for each in told), 0)
