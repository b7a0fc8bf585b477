"""How reasons put times, counts and lists, so that all of them read alike (R8)."""

import math
from collections.abc import Iterable

GIVING_UP_WOULD_DO = "`keep_last_good: false` would give up what serves to make the room"


def span(seconds: float) -> str:
    """A length of time for reading: `9 s`, `5 min`, `2 h`."""
    if seconds < 120:
        return f"{math.ceil(seconds)} s"
    if seconds < 7200:
        return f"{round(seconds / 60)} min"
    return f"{round(seconds / 3600)} h"


def as_written(seconds: float) -> str:
    """A duration as a manifest has it, to be found there: `90s`, `30m`, `1h`."""
    for unit, size in (("h", 3600), ("m", 60)):
        if seconds >= size and seconds % size == 0:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:g}s"


def ordinal(number: int) -> str:
    """`1st`, `2nd`, `3rd`, `4th`, `11th`."""
    ending = (
        "th" if 10 <= number % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    )
    return f"{number}{ending}"


def pids(numbers: Iterable[int]) -> str:
    """`pid 12`, or `pids 12, 13`."""
    listed = [str(number) for number in numbers]
    return f"pid{'s' if len(listed) > 1 else ''} {', '.join(listed)}"


def amount(size_bytes: int) -> str:
    """Memory for reading: `9.1 GiB`, `310 MiB`."""
    mib = round(size_bytes / 1024**2)
    return f"{mib} MiB" if mib < 1000 else f"{size_bytes / 1024**3:.1f} GiB"
