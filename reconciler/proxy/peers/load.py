"""How busy a model is at one node, and how that rides on an answer (PURE)."""

from dataclasses import dataclass

HEADER = b"x-xgen-load"
"""On what an agent answers to a peer that passed an inference request on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLoad:
    """`in_flight`: requests that its backend works on; `waiting`: at the agent, for a turn;
    `queued`: within the engine; `kv_usage`: 0 to 1. None: not told."""

    in_flight: int = 0
    waiting: int = 0
    queued: int | None = None
    kv_usage: float | None = None


IDLE = ModelLoad()
