"""Finds out whether a path is a subPath mount, which kubelet never updates (kubernetes#50345)."""

import re

_TIMESTAMP = re.compile(r"/\.\.\d{4}_")
_OCTAL = re.compile(r"\\([0-7]{3})")


def frozen_mount(mountinfo: str, path: str) -> str | None:
    """The mount point at or above `path` that is a Kubernetes subPath, or None.

    `mountinfo`: the text of /proc/self/mountinfo. A subPath of a ConfigMap is bound from inside the
    volume's `..TIMESTAMP` folder; the whole volume is bound from above it.
    """
    frozen: str | None = None
    longest = -1
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        if len(fields) < 5:
            continue
        root, point = _unescape(fields[3]), _unescape(fields[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= longest:
            longest = len(point)
            frozen = point if _TIMESTAMP.search(root) else None
    return frozen


def _unescape(field: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), field)
