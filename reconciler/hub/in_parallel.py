"""The same long work on several files at once, which ends together."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

from reconciler.errors import Transient
from reconciler.hub.writable import Watch

_FILES = 4
"""At a time. With four parts of 8 MiB each, some 160 MiB of memory at the most."""
T = TypeVar("T")
R = TypeVar("R")


def in_parallel(
    work: Callable[[T, Watch], R], items: Sequence[T], on_bytes: Callable[[int], None]
) -> list[R]:
    """The results, in the order of `items`. The first failure (or Ctrl-C) ends the others."""
    ended = threading.Event()

    def check() -> None:
        if ended.is_set():
            raise Transient("cannot go on: something else failed")

    watch = Watch(on_bytes=on_bytes, check=check)
    with ThreadPoolExecutor(_FILES, thread_name_prefix="hub") as pool:
        futures = [pool.submit(work, item, watch) for item in items]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            ended.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [future.result() for future in futures]
