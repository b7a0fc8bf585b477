"""Reads an object of a store into memory, as the cache would into a file."""

import os
import tempfile
from collections.abc import Callable
from typing import Protocol

from reconciler.hub.objects import HubObject, ObjectRef


class Readable(Protocol):
    def read(
        self,
        stored: ObjectRef,
        fd: int,
        *,
        on_bytes: Callable[[int], None],
        cancelled: Callable[[], bool],
    ) -> None: ...


def read_all(
    store: Readable,
    stored: HubObject,
    *,
    on_bytes: Callable[[int], None] = lambda _done: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> bytes:
    with tempfile.TemporaryFile() as file:
        store.read(stored, file.fileno(), on_bytes=on_bytes, cancelled=cancelled)
        return os.pread(file.fileno(), stored.size_bytes + 1, 0)
