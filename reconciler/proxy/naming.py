"""As many names as one message has room for, and how many more there are (PURE)."""

from collections.abc import Sequence


def listed(names: Sequence[str], most: int, *, between: str = ", ") -> str:
    """The first `most` of them, and the number of the others."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return between.join(names[:most]) + more
