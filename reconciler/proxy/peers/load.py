"""How busy a model is at one node, and how that rides on an answer (PURE).

    x-xgen-load: in_flight=3;waiting=0;queued=2;kv_usage=0.4375

Pairs that are not known are passed over, and those that are missing are not told: agents of other
releases may say more, or less.
"""

import math
from dataclasses import dataclass

HEADER = b"x-xgen-load"
"""On what an agent answers to a peer that passed an inference request on."""
_LONGEST = 1024
_MOST = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLoad:
    """`in_flight`: requests that its backend works on; `waiting`: at the agent, for a turn;
    `queued`: within the engine; `kv_usage`: 0 to 1. None: not told."""

    in_flight: int = 0
    waiting: int = 0
    queued: int | None = None
    kv_usage: float | None = None


IDLE = ModelLoad()


def encode(load: ModelLoad) -> bytes:
    pairs = [f"in_flight={load.in_flight}", f"waiting={load.waiting}"]
    if load.queued is not None:
        pairs.append(f"queued={load.queued}")
    if load.kv_usage is not None:
        pairs.append(f"kv_usage={load.kv_usage:.4f}")
    return ";".join(pairs).encode()


def decode(value: bytes) -> ModelLoad | None:
    """None: it says nothing of how many requests are there."""
    pairs: dict[str, str] = {}
    for pair in value[:_LONGEST].decode("latin-1").split(";"):
        name, _, figure = pair.partition("=")
        pairs.setdefault(name.strip(" \t"), figure.strip(" \t"))
    in_flight = _count(pairs.get("in_flight"))
    if in_flight is None:
        return None
    return ModelLoad(
        in_flight=in_flight,
        waiting=_count(pairs.get("waiting")) or 0,
        queued=_count(pairs.get("queued")),
        kv_usage=_share(pairs.get("kv_usage")),
    )


def _count(text: str | None) -> int | None:
    if text is None or not (text.isascii() and text.isdecimal()):
        return None
    return min(int(text), _MOST) if len(text) <= 20 else _MOST


def _share(text: str | None) -> float | None:
    try:
        share = float(text) if text is not None else math.nan
    except ValueError:
        return None
    return min(1.0, max(0.0, share)) if math.isfinite(share) else None
