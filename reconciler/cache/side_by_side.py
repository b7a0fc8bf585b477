"""The same blocking work for several things at once, in threads that a process may end with."""

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def side_by_side(
    work: Callable[[T, Callable[[], bool]], None], things: Sequence[T], *, at_once: int
) -> None:
    """Do all of it, in order; raises the first failure once all have ended.

    `work` is given the thing, and asks its second argument whether another has failed, so that it
    should end, too.
    """
    left = iter(things)
    lock = threading.Lock()
    failures: list[BaseException] = []

    def is_over() -> bool:
        return bool(failures)

    def take() -> None:
        while True:
            with lock:
                thing = next(left, None)
            if thing is None or is_over():
                return
            try:
                work(thing, is_over)
            except BaseException as exc:  # noqa: BLE001  the thread's boundary: it is raised below
                failures.append(exc)

    threads = [
        threading.Thread(target=take, name="side by side", daemon=True)
        for _ in range(min(at_once, len(things)) - 1)
    ]
    for thread in threads:
        thread.start()
    take()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
