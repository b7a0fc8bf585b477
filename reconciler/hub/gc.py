"""What a prefix no longer needs.

Kept are the newest catalogs, those that were in force less than `min_age` ago (pulls of them may be
under way), those asked for, and everything that one of them names. What no catalog ever named is
not ours: other tools put it there. Nothing goes while a push is under way.
"""

from collections.abc import Collection
from dataclasses import dataclass

from reconciler.errors import Transient
from reconciler.hub.catalog import OBJECTS, PUSHES, catalog_key
from reconciler.hub.prefix_state import PrefixState, Pushed, read_state
from reconciler.hub.turns import TURNS
from reconciler.hub.writable import Stored, Unfinished, WritableHub


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """`keep`: how many catalogs, at least 1. `digests`: more of them. `min_age_seconds`: of what
    is removed. `now`: seconds since 1970."""

    keep: int
    digests: Collection[str]
    min_age_seconds: float
    now: float

    def is_old(self, at: float) -> bool:
        return self.now - at >= self.min_age_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """`files` go before `catalogs`: what was cut off is found again. `digests`: of the catalogs
    that go. `foreign`: how many plain files no catalog names. `unfinished`: uploads that were cut
    off. `waits`: why nothing goes now, else "".
    """

    prefix: str
    files: tuple[Stored, ...] = ()
    catalogs: tuple[Stored, ...] = ()
    digests: tuple[str, ...] = ()
    unfinished: tuple[Unfinished, ...] = ()
    foreign: int = 0
    waits: str = ""

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in (*self.files, *self.catalogs))


def sweep(state: PrefixState, unfinished: Collection[Unfinished], policy: Policy) -> Sweep:
    """What may go (PURE). Raises Transient where a catalog cannot be read: it may name anything."""
    prefix = state.prefix
    if state.damaged:
        raise Transient(
            f"cannot clean {prefix}: {next(iter(state.damaged.values()))}; push that content again"
        )
    old_uploads = tuple(each for each in unfinished if policy.is_old(each.started_at))
    recent = [each for each in state.pushes if not policy.is_old(each.modified_at)]
    if recent:
        waits = "a push is under way, or was cut off within --min-age"
        return Sweep(prefix=prefix, unfinished=old_uploads, waits=waits)
    if state.current is None:
        waits = "a push to it was cut off: push again, or remove it" if state.pushes else ""
        return Sweep(prefix=prefix, unfinished=old_uploads, waits=waits)
    kept = _kept(state, policy)
    dropped = [each for each in state.pushed if each.catalog.digest not in kept]
    named = {
        file.key
        for catalog in (state.current, *(each.catalog for each in state.pushed))
        if catalog.digest in kept
        for file in catalog.files
    }
    return Sweep(
        prefix=prefix,
        files=_files(state, dropped, named, policy),
        catalogs=tuple(state.stored[catalog_key(each.catalog.digest)] for each in dropped),
        digests=tuple(each.catalog.digest for each in dropped),
        unfinished=old_uploads,
        foreign=len(_foreign(state)),
    )


def clean(hub: WritableHub, done: Sweep, policy: Policy) -> None:
    """Remove what a sweep found. Raises Transient, also where a push began meanwhile."""
    for each in done.unfinished:
        hub.discard(done.prefix, each)
    if not done.files and not done.catalogs:
        return
    state = read_state(hub, done.prefix)  # shortly before: who announces himself later sees ours
    again = sweep(state, (), policy)
    if again.waits or not set(done.files) <= set(again.files):
        raise Transient(f"cannot clean {done.prefix}: something is being pushed to it; try again")
    for stored in (*done.files, *done.catalogs):
        hub.delete(done.prefix, stored.key)


def _kept(state: PrefixState, policy: Policy) -> set[str]:
    """Digests. `state.pushed` is in order: each was in force until the one before it."""
    assert state.current is not None
    kept = {state.current.digest, *policy.digests}
    until = policy.now
    for number, each in enumerate(state.pushed):
        if number < policy.keep or not policy.is_old(until):
            kept.add(each.catalog.digest)
        until = each.written_at
    return kept


def _files(
    state: PrefixState, dropped: list[Pushed], named: set[str], policy: Policy
) -> tuple[Stored, ...]:
    """Objects that no kept catalog names, plain files of dropped ones, old
    announcements and tickets."""
    plain = {
        file.key for each in dropped for file in each.catalog.files if state.untouched(file, each)
    }
    return tuple(
        stored
        for key, stored in state.stored.items()
        if key not in named
        and policy.is_old(stored.modified_at)
        and (key.startswith((OBJECTS, PUSHES, TURNS)) or key in plain)
    )


def _foreign(state: PrefixState) -> set[str]:
    ours = {file.key for each in state.pushed for file in each.catalog.files}
    ours |= {file.key for file in state.current.files} if state.current else set()
    return {each.key for each in state.plain} - ours
