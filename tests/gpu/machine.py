"""This machine's GPUs as `xgen-model gpus` tells of them."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.cli.command import xgen_model
from tests.gpu.ledger import NotChecked

_TROUBLE = ("mismatch", "no-permission", "hung", "crashed", "unloaded", "other")
_NEEDED_FREE = 0.7
"""Of a GPU's memory, for two models of three tenths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """`told`: the command's JSON."""

    told: Mapping[str, Any]

    @property
    def usable(self) -> list[Mapping[str, Any]]:
        return [gpu for gpu in self.told["gpus"] if gpu["unusable"] is None]

    @property
    def trouble(self) -> list[str]:
        """What went wrong in the chain, other than that something is not there."""
        return [
            f"{each['step']}: {each['reason']}"
            for each in self.told["chain"]
            if each["cause"] in _TROUBLE
        ]

    @property
    def chain(self) -> str:
        return "; ".join(f"{each['step']}: {each['reason']}" for each in self.told["chain"])

    def gpu(self, identity: str) -> Mapping[str, Any]:
        return next(gpu for gpu in self.told["gpus"] if identity == identity_of(gpu))

    def of_processes(self, pids: set[int]) -> dict[str, int | None]:
        """The GPUs that these are on, with the bytes that they hold of each; None: not told."""
        found: dict[str, int | None] = {}
        for gpu in self.told["gpus"]:
            held = [each["memory_bytes"] for each in gpu["processes"] or () if each["pid"] in pids]
            if held:
                found[identity_of(gpu)] = None if None in held else sum(held)
        return found


def look(server: str | None = None) -> Machine:
    """`server`: the agent that tells which models hold them."""
    asked = ("--server", server) if server is not None else ()
    done = xgen_model("gpus", *asked, "--output", "json")
    assert done.returncode == 0, f"xgen-model gpus exits with {done.returncode}: {done.stderr}"
    return Machine(told=json.loads(done.stdout))


def identity_of(gpu: Mapping[str, Any]) -> str:
    return str(gpu["uuid"] or gpu["pci"])


def roomiest(machine: Machine) -> Mapping[str, Any]:
    """The GPU of which the largest part is free. Raises NotChecked where two models do not fit."""

    def free(gpu: Mapping[str, Any]) -> float:
        total = gpu["memory_total_bytes"]
        return (gpu["memory_free_bytes"] or 0) / total if total else 0.0

    best = max(machine.usable, key=free)
    if free(best) < _NEEDED_FREE:
        raise NotChecked(
            f"of no GPU is {_NEEDED_FREE:.0%} of the memory known to be free: at most "
            f"{free(best):.0%}, of {identity_of(best)}"
        )
    return best


def family(leader: int) -> set[int]:
    """The living processes of the session that a backend leads."""
    return {pid for pid in _pids() if _session(pid) == leader}


def _pids() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _session(pid: int) -> int | None:
    try:
        words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if words[0] == "Z" else int(words[3])
