"""Which processes still read files that have gone from the cache: most were rotten.

An engine that maps its file (llama.cpp) reads what it opened for as long as it lives, whatever has
the name by now. Only /proc tells, so it is asked where a file has gone, or is another one.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from reconciler.apply.backends import BackendView
from reconciler.cache.model_cache import ModelCache
from reconciler.cache.pins import Holding
from reconciler.loop.observation import Seen
from reconciler.observe.processes import removed_files
from reconciler.plan.ids import Nonce

Families = Mapping[Nonce, Sequence[int]]
"""The pids of each backend."""
_Inodes = tuple[int | None, ...]


class RemovedFiles:
    """How the files of each process stood at the last look, and who reads others."""

    def __init__(self, cache: ModelCache) -> None:
        self._cache = cache
        self._inodes: dict[Nonce, _Inodes] = {}
        self._reading: frozenset[Nonce] = frozenset()

    def look(self, seen: Seen, families: Families) -> Seen:
        """`seen`, with those processes. For a thread: a `stat` for each file of what runs."""
        views = [view for each in seen.views.values() for view in each]
        self._reading = frozenset(view.nonce for view in views if self._reads(view, families))
        living = {view.nonce for view in views}
        self._inodes = {nonce: each for nonce, each in self._inodes.items() if nonce in living}
        return replace(seen, reads_removed=self._reading)

    def _reads(self, view: BackendView, families: Families) -> bool:
        """As at the last look, unless a file has gone since, or is another one. Of what is adopted
        there was no look before the first."""
        holding = self._cache.holding_of(view.instance.files_digest)
        if holding is None:
            return False
        now = self._cache.keeper.inodes(holding)
        before = self._inodes.get(view.nonce, now if view.adopted is None else None)
        self._inodes[view.nonce] = now
        if now == before:
            return view.nonce in self._reading
        return self._maps_what_has_gone(holding, families.get(view.nonce, ()))

    def _maps_what_has_gone(self, holding: Holding, pids: Sequence[int]) -> bool:
        """What only goes by another name now, as hard links do, is the same file still."""
        folder = os.path.realpath(self._cache.keeper.revisions(holding.prefix))
        removed = frozenset[int]().union(*(removed_files(pid, folder) for pid in pids))
        return bool(removed - _inodes_below(folder)) if removed else False


def _inodes_below(folder: str) -> frozenset[int]:
    found: set[int] = set()
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                found.add(os.lstat(os.path.join(parent, name)).st_ino)
            except FileNotFoundError:
                continue
    return frozenset(found)
