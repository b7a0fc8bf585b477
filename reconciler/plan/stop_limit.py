"""How many of a node's running models one revision of the manifest may stop unasked."""

import re
from dataclasses import dataclass

SMALL_NODE = 4
"""A share of fewer models says nothing: one of two is half."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StopLimit:
    """At most `percent` of those that run, where at least `SMALL_NODE` do, or at most `count`; with
    neither any number."""

    percent: int | None = None
    count: int | None = None

    def allows(self, stops: int, *, of: int) -> bool:
        """Whether so many of those that run may be stopped."""
        return stops <= self.at_most(of)

    def at_most(self, running: int) -> int:
        if self.count is not None:
            return min(self.count, running)
        if self.percent is None or running < SMALL_NODE:
            return running
        return running * self.percent // 100

    def __str__(self) -> str:
        if self.count is not None:
            return str(self.count)
        return f"{self.percent}%" if self.percent is not None else "none"


DEFAULT_STOP_LIMIT = StopLimit(percent=50)
NO_STOP_LIMIT = StopLimit()

_PERCENT = re.compile(r"(100|[1-9]?[0-9])%")
_COUNT = re.compile(r"0|[1-9][0-9]{0,5}")


def stop_limit_of(text: str) -> StopLimit | None:
    """As it is written: `50%`, `3` or `none`. None: it is none of them."""
    if text == "none":
        return NO_STOP_LIMIT
    if (found := _PERCENT.fullmatch(text)) is not None:
        return StopLimit(percent=int(found[1]))
    return StopLimit(count=int(text)) if _COUNT.fullmatch(text) else None
