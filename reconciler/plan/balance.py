"""How full one memory is, and would be once a plan has come true, as a value."""

from dataclasses import dataclass

from reconciler.plan.memory import HOST, Pool
from reconciler.plan.wording import amount


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """Of one GPU, or of the host, in bytes. `complete`: no part of what comes is unknown."""

    gpu: Pool
    index: int | None
    total_bytes: int
    used_bytes: int
    after_bytes: int
    complete: bool

    @property
    def overflows(self) -> bool:
        return self.after_bytes > self.total_bytes

    @property
    def name(self) -> str:
        if self.gpu == HOST:
            return "memory"
        return f"GPU {self.index} ({self.gpu})" if self.index is not None else str(self.gpu)

    def __str__(self) -> str:
        """`GPU 0 (GPU-5f1…): 1.0 GiB of 80.0 GiB used, at least 54.3 GiB then`."""
        least = "" if self.complete else "at least "
        more = ", which is more than there is" if self.overflows else ""
        return (
            f"{self.name}: {amount(self.used_bytes)} of {amount(self.total_bytes)} used, "
            f"{least}{amount(self.after_bytes)} then{more}"
        )

    @property
    def figures(self) -> dict[str, str | int | bool | None]:
        return {
            "gpu": self.gpu,
            "index": self.index,
            "total_bytes": self.total_bytes,
            "used_bytes": self.used_bytes,
            "after_bytes": self.after_bytes,
            "complete": self.complete,
        }
