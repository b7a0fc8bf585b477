"""The clock that the loop is given."""

from typing import Protocol


class Clock(Protocol):
    """`monotonic`: the plan's clock, seconds. `wall`: one of its moments as RFC 3339, UTC."""

    def monotonic(self) -> float: ...
    def wall(self, moment: float) -> str: ...
