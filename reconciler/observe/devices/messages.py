"""What the child and the agent say to each other: lines of JSON."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from reconciler.plan.gpu_survey import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is answered already; the child answers the rest. `root`: where /sys and /dev are."""

    answers: tuple[Answer, ...] = ()
    root: str = "/"


def encode(message: Order | Answer) -> bytes:
    return msgspec.json.encode(message) + b"\n"


def decode_order(text: bytes) -> Order:
    return msgspec.json.decode(text, type=Order)


def decode_answers(lines: Sequence[bytes]) -> list[Answer]:
    return [msgspec.json.decode(line, type=Answer) for line in lines]
