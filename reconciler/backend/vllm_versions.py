"""What differs between the versions of vLLM (PURE).

0.10.0   the task of a model is --task; since 0.10.1 it is --runner and --convert
0.10.1   --disable-log-requests is --no-enable-log-requests
0.17     VLLM_ATTENTION_BACKEND is no longer read (deprecated since 0.13)
0.32     --kv-cache-memory-bytes counts on CPU, too; in 0.17 VLLM_CPU_KVCACHE_SPACE alone did
"""

import re
from dataclasses import dataclass
from typing import Self

Version = tuple[int, ...]

_NUMBERS = re.compile(r"\d+(?:\.\d+)*")
_NEWEST: Version = (9999,)
"""What a version that cannot be read is taken for: old flags go, and new ones are there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """Of one version. `task`: the model's type is told by --task.

    `kv_bytes`: the size of the cache can be told in bytes on CPU. `attention_variable`: what
    becomes of VLLM_ATTENTION_BACKEND, None where it still counts. `log_requests`: requests are
    logged only if one asks for it.
    """

    task: bool
    kv_bytes: bool
    attention_variable: str | None
    log_requests: bool

    @classmethod
    def of(cls, version: str | None) -> Self:
        number = parse(version)
        return cls(
            task=number < (0, 10, 1),
            kv_bytes=number >= (0, 32),
            attention_variable=_attention_variable(number),
            log_requests=number >= (0, 10, 1),
        )


def parse(version: str | None) -> Version:
    """`0.10.1` of `0.10.1rc2+cu128`."""
    found = _NUMBERS.match(version or "")
    return tuple(int(part) for part in found[0].split(".")) if found else _NEWEST


def _attention_variable(number: Version) -> str | None:
    if number >= (0, 17):
        return "is not read any more"
    return "is deprecated" if number >= (0, 13) else None


REMOVED: dict[str, tuple[Version, str]] = {
    "task": ((0, 10, 1), "it follows from the model's `type`"),
    "disable_cascade_attn": ((0, 33), "it is gone without a successor"),
    "log_config_file": ((0, 33), "the agent keeps the backend's output in a log file of its own"),
}
"""Since when, and what to do instead. For versions whose list of flags this release has not."""
