"""What downloads that are to come would cost the cache (PURE)."""

from dataclasses import dataclass

from reconciler.plan.changes import Evicted


@dataclass(frozen=True, slots=True, kw_only=True)
class NoFit:
    """A download for which all that may go is too little; nothing goes for it. `reason`: the
    numbers, for operators."""

    prefix: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Evictions:
    """In the order in which they would go. `unfit`: what finds no room."""

    evicted: tuple[Evicted, ...] = ()
    unfit: tuple[NoFit, ...] = ()
