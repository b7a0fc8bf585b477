"""How far a copy from the first byte to the last has come, for the try after a kill."""

from collections.abc import Callable

from reconciler.hub.objects import Journal
from reconciler.hub.parts import part_bytes_for


class CopiedParts:
    """Of a file of this size. `on_bytes`: told how much is there, before the journal is.

    What is not larger than a part has no journal.
    """

    def __init__(
        self, journal: Journal | None, size_bytes: int, on_bytes: Callable[[int], None]
    ) -> None:
        self._part_bytes = part_bytes_for(size_bytes)
        self._journal = journal if size_bytes > self._part_bytes else None
        self._on_bytes = on_bytes
        self._finished = 0

    def begin(self) -> int:
        """Where to go on: all bytes before are there."""
        if self._journal is None:
            return 0
        self._part_bytes, there = self._journal.begin(self._part_bytes)
        self._finished = 0
        while self._finished in there:
            self._finished += 1
        return self._finished * self._part_bytes

    def note(self, done: int) -> None:
        """So many bytes are there. The last part, if it is short, is copied again."""
        self._on_bytes(done)
        while self._journal is not None and (self._finished + 1) * self._part_bytes <= done:
            self._journal.finished(self._finished)
            self._finished += 1

    def forget(self) -> None:
        """They are not what they should be."""
        if self._journal is not None:
            self._journal.forget()
