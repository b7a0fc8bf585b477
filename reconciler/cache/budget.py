"""How large the cache may become, and what of the disk stays free (PURE)."""

import re
from dataclasses import dataclass

_UNITS = {
    "": 1,
    "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12,
    "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40,
}  # fmt: skip
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([kmgt]i?)?b?)", re.IGNORECASE)
_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_LEAST_HEADROOM = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Exactly one is set. `share`: of the disk that the models folder is on, 0 to 1."""

    size_bytes: int | None = None
    share: float | None = None

    def of(self, disk_bytes: int) -> int:
        """In bytes, on a disk of this size."""
        if self.share is not None:
            return int(self.share * disk_bytes)
        return self.size_bytes or 0


def parse_budget(text: str) -> Budget:
    """`200GiB`, `500GB`, `80%`. Raises ValueError with what is wrong."""
    text = text.strip()
    if (match := _SHARE.fullmatch(text)) is not None:
        share = float(match[1]) / 100
        if not 0 < share <= 1:
            raise ValueError("a share of the disk is more than 0 % and at most 100 %")
        return Budget(share=share)
    if (match := _SIZE.fullmatch(text)) is None:
        raise ValueError("it must look like 200GiB, 500GB or 80%")
    size_bytes = int(float(match[1]) * _UNITS[(match[2] or "").lower()])
    if size_bytes == 0:
        raise ValueError("it must be more than nothing")
    return Budget(size_bytes=size_bytes)


def headroom_bytes(disk_bytes: int) -> int:
    """What a download leaves free: 1 GiB or 1 % of the disk, whichever is more.

    At most a tenth of the disk: on a small one, 1 GiB may be all there is.
    """
    return min(max(_LEAST_HEADROOM, disk_bytes // 100), disk_bytes // 10)
