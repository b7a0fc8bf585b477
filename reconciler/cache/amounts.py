"""Sizes as operators read them (PURE)."""

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def human(size_bytes: float) -> str:
    """`512 B`, `12.3 GiB`."""
    size = size_bytes
    for unit in _UNITS[:-1]:
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} {_UNITS[-1]}"
