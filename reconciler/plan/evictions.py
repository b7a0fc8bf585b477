"""What downloads that are to come would cost the cache (PURE)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Evicted:
    """Files of one revision that would go. `size_bytes`: by which the cache is smaller then."""

    prefix: str
    revision: str
    size_bytes: int


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
