"""Turns among writers of a store that knows no conditions: one of them writes at a time.

    .xgen/turns/<ticket>     of a writer that waits for its turn, or has it

Who looks, after its own ticket is written, and sees no other has the turn: of two that come at
once, one at least sees the other. Then the first ticket by name waits, and the others are taken
back until it is gone. One that stays for half a minute is a dead writer's: it is removed, and
waited for no more, as a store may keep it all the same. (rclone does where writes crossed.)
"""

import random
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

TURNS = ".xgen/turns/"
_DEAD_SECONDS = 30.0
_LOOK_SECONDS = (0.02, 0.1)
"""Somewhere between the two, so that writers do not go in step."""


class Tickets(Protocol):
    """Of one prefix. What was written is listed from then on."""

    def write(self, ticket: str) -> None: ...
    def remove(self, ticket: str) -> None: ...
    def listed(self) -> frozenset[str]: ...


@contextmanager
def turn(tickets: Tickets, *, dead_seconds: float = _DEAD_SECONDS) -> Iterator[None]:
    """Blocks until it is ours. A writer that takes longer than `dead_seconds` may lose it."""
    ours = secrets.token_hex(8)
    seen_at: dict[str, float] = {}
    tickets.write(ours)
    try:
        while True:
            listed, now = tickets.listed(), time.monotonic()
            seen_at = {each: seen_at.get(each, now) for each in listed - {ours}}
            dead = {each for each, at in seen_at.items() if now - at > dead_seconds}
            for each in dead:
                tickets.remove(each)
            there = listed - dead
            if there == {ours}:
                break
            is_first = ours == min(there | {ours})
            if is_first and ours not in there:
                tickets.write(ours)
                continue
            if not is_first and ours in there:
                tickets.remove(ours)
            time.sleep(random.uniform(*_LOOK_SECONDS))
        yield
    finally:
        tickets.remove(ours)
