"""What a download needs of the disk and of the budget, and how it is refused (PURE)."""

from collections.abc import Sequence
from dataclasses import dataclass

from reconciler.cache.amounts import human
from reconciler.cache.eviction import Freed
from reconciler.cache.inventory import StoredRevision
from reconciler.cache.pins import Pins

_TOLD_MODELS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Bytes that a download and others still write, and what there is for them.

    `promised`: to others of this agent; `elsewhere`: by other agents that live, each with what it
    is for, as words. `budget` None: there is none. `used`: by the cache. `headroom`: what must stay
    free.
    """

    needed: int
    promised: int
    elsewhere: Sequence[tuple[str, int]]
    free: int
    headroom: int
    used: int
    budget: int | None

    @property
    def missing(self) -> Freed:
        """What has to go first."""
        wanted = self.needed + self.promised + sum(size for _, size in self.elsewhere)
        over = 0 if self.budget is None else max(0, self.used + wanted - self.budget)
        return Freed(cache=over, disk=max(0, wanted + self.headroom - self.free))


def refusal(
    prefix: str,
    folder: object,
    demand: Demand,
    *,
    can_go: Freed,
    revisions: Sequence[StoredRevision],
    pins: Pins,
) -> str:
    """The numbers, and who holds what. `folder`: of the cache. `can_go`: all that nobody needs."""
    said = [
        f"cannot fetch {prefix}: {human(demand.needed)} are needed and {human(demand.free)} "
        f"are free in {folder}, of which {human(demand.headroom)} stay free"
    ]
    if demand.promised:
        said.append(f"downloads under way still need {human(demand.promised)}")
    if demand.elsewhere:
        others = ", ".join(f"{human(size)} for {what}" for what, size in demand.elsewhere)
        said.append(f"other agents' downloads still need {others}")
    if demand.budget is not None:
        said.append(f"the cache has {human(demand.used)} of its {human(demand.budget)}")
    most = max(can_go.cache, can_go.disk)
    said.append(f"{human(most)} can be evicted" if most else "nothing can be evicted")
    if by := pinned_by(revisions, pins):
        ranked = sorted(by.items(), key=lambda each: (-each[1], each[0]))
        told = [f"{model} ({human(size)})" for model, size in ranked[:_TOLD_MODELS]]
        more = [f"and {len(ranked) - _TOLD_MODELS} more"] if len(ranked) > _TOLD_MODELS else []
        said.append(f"pinned by {', '.join([*told, *more])}")
    return "; ".join(said)


def pinned_by(revisions: Sequence[StoredRevision], pins: Pins) -> dict[str, int]:
    """Bytes that each model needs; those of files that several need count for each."""
    found: dict[str, int] = {}
    for item in revisions:
        for file in item.files:
            for model in pins.models(item.prefix, item.digest, file.path):
                found[model] = found.get(model, 0) + file.size_bytes
    return found
