"""Waiting for something to become true, with a deadline that only a hang reaches."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(look: Callable[[], T | None], *, what: str, seconds: float = 30.0) -> T:
    """Ask `look` until it gives something, and return that."""
    deadline = time.monotonic() + seconds
    while (value := look()) is None:
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:.0f} s in vain: {what}")
        time.sleep(0.02)
    return value


def wait_until(holds: Callable[[], bool], *, what: str, seconds: float = 30.0) -> None:
    """Ask until the answer is yes."""
    wait_for(lambda: True if holds() else None, what=what, seconds=seconds)
