"""Holds what is known of this node's engines, and asks anew only those whose files have changed."""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from reconciler.backend.engine_files import Stamps, just_written, stamps
from reconciler.backend.inventory import Asked, Build, Inventory, Missing


@dataclass(frozen=True, slots=True, kw_only=True)
class Finder:
    """One engine's. `locate`: its path as of now, None: it is nowhere. `ask`: for what is there;
    blocks as long as that takes to answer."""

    locate: Callable[[], str | None]
    ask: Callable[[str | None], Asked]


@dataclass(frozen=True, slots=True, kw_only=True)
class _State:
    """Where an engine is, and its files; two that are equal: nothing has changed."""

    path: str | None
    files: Stamps


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """`state`: in which it was asked; None: it may have changed meanwhile. `seen`: at the last
    look."""

    asked: Asked
    state: _State | None
    seen: _State


class Discovery:
    """To be asked by one thread at a time. `wall_ns`: the wall clock, in nanoseconds."""

    def __init__(
        self, finders: Sequence[Finder], *, wall_ns: Callable[[], int] = time.time_ns
    ) -> None:
        self._finders = finders
        self._wall_ns = wall_ns
        self._known: tuple[_Known, ...] = ()
        self._inventory = Inventory()

    def look(self) -> Inventory:
        """The very value of the call before where nothing is new.

        An engine that has changed is asked once two looks have found the same: an upgrade under way
        is let come to its end.
        """
        before: Sequence[_Known | None] = self._known or [None] * len(self._finders)
        self._known = tuple(map(self._look, self._finders, before))
        inventory = _inventory(one for each in self._known for one in each.asked.found)
        if inventory != self._inventory:
            self._inventory = inventory
        return self._inventory

    def _look(self, finder: Finder, known: _Known | None) -> _Known:
        if known is None:
            return self._ask(finder, None)
        state = _State(path=finder.locate(), files=stamps(known.asked.files))
        if state in (known.state, known.seen):
            return known if state == known.state else self._ask(finder, state)
        return replace(known, seen=state)

    def _ask(self, finder: Finder, seen: _State | None) -> _Known:
        began = self._wall_ns()
        path = finder.locate()
        asked = finder.ask(path)
        state = _State(path=path, files=stamps(asked.files))
        settled = state == seen or not just_written(asked.files, since_ns=began)
        return _Known(asked=asked, state=state if settled else None, seen=state)


def _inventory(found: Iterable[Build | Missing]) -> Inventory:
    every = tuple(found)
    return Inventory(
        builds=tuple(one for one in every if isinstance(one, Build)),
        missing=tuple(one for one in every if isinstance(one, Missing)),
    )
