"""A length of time as people write it: in the manifest, and on the command line alike."""

import math
import re

SPAN = r"[0-9]+(\.[0-9]+)?[smhd]?"
EXAMPLES = "90, 90s, 30m, 1h or 2d"
MAX_SECONDS = 365 * 86_400.0
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def span_seconds(text: str) -> float | None:
    """`90`, `90s`, `1.5h` or `2d` in seconds; None for what is no such length."""
    if re.fullmatch(SPAN, text, re.ASCII) is None:
        return None
    seconds = float(text.rstrip("smhd")) * _SECONDS.get(text[-1], 1.0)
    return seconds if math.isfinite(seconds) else None


def span_complaint(seconds: float | None) -> str | None:
    """What is wrong with a length, as a clause without its value; None: nothing."""
    if seconds is None or not 0.0 <= seconds < math.inf:
        return f"must be a duration such as {EXAMPLES}"
    if seconds > MAX_SECONDS:
        return "must be at most a year (365d)"
    return None
