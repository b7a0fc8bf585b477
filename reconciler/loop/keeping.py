"""The loop's side of the cache's keeper: says which files must stay, and hears which went."""

import time
from collections.abc import Mapping

from reconciler.cache.address import HubAddress, parse_source
from reconciler.cache.foresight import Arrival
from reconciler.cache.model_cache import ModelCache
from reconciler.cache.news import News
from reconciler.cache.pin_board import ALIVE_SECONDS
from reconciler.cache.pins import Holding, Pins, pins_of
from reconciler.loop.downloads import files_key
from reconciler.loop.observation import Looks, Seen
from reconciler.loop.removed_files import Families, RemovedFiles
from reconciler.plan.desired import DesiredModel, ModelSpec
from reconciler.plan.evictions import Evictions
from reconciler.plan.ids import FilesDigest, ModelName

_LOOK_SECONDS = 60.0
"""Between looks at a cache that is too large, and tries to write to one that is full."""

_Running = frozenset[tuple[ModelName, FilesDigest]]
Specs = Mapping[ModelName, tuple[ModelSpec, ...]]


class Keeping:
    """What was said last, to say only what is new."""

    def __init__(self, cache: ModelCache) -> None:
        self._cache = cache
        self._removed = RemovedFiles(cache)
        self._looks: Looks | None = None
        self._running: _Running = frozenset()
        self._later: Specs = {}
        self._said_at = 0.0

    def is_due(self, looks: Looks, seen: Seen, later: Specs) -> bool:
        """Whether what must stay may be something else now. Costs next to nothing."""
        if looks is not self._looks or _running(seen) != self._running or later != self._later:
            return True
        if self._cache.keeper.outdated:
            return True
        at_rest = self.over_budget() is None and not self._cache.keeper.unsaid
        pause = ALIVE_SECONDS if at_rest else _LOOK_SECONDS
        return time.monotonic() - self._said_at >= pause

    def pin(self, looks: Looks, seen: Seen, later: Specs) -> bool:
        """Say what must stay; whether something else may go now. For a thread: it writes.

        Models that are disabled keep their files, a fallback's too, and what runs keeps those that
        it was given. `later`: what may run again, and neither runs now nor has a look.
        """
        self._looks, self._running, self._later = looks, _running(seen), later
        self._said_at = time.monotonic()
        self._cache.keeper.outdated = False  # what is found from here on is said
        self._cache.keeper.look_again()
        pins = self._pins(looks, self._running, self._later)
        return self._cache.keeper.pin(pins)

    def lets_go(self, looks: Looks, seen: Seen, later: Specs) -> bool:
        """Whether `pin` would say so, if it said this next. For a thread."""
        before = self._cache.keeper.said
        return before is not None and before.misses(self._pins(looks, _running(seen), later))

    def cached_bytes(self, model: DesiredModel) -> int | None:
        """Of its files, what is here already; None: some of it, which is not told. For a thread."""
        found = self._cache.lookup(model.spec)
        if found is not None:
            return found.size_bytes
        return None if self._cache.needed(model.spec) else 0

    def foresee(self, looks: Looks, seen: Seen, later: Specs) -> Evictions:
        """What the downloads of these models would evict, in the order of `looks`, and which find
        no room. For a thread. Raises Transient.

        `looks`: at what may be wanted some day, as `pin` takes them. A model that has none is gone
        by then, so that its files may go, too.
        """
        stay = looks.keys() | later.keys()
        running = frozenset(each for each in _running(seen) if each[0] in stay)
        own = self._pins(looks, running, later)
        return self._cache.keeper.foresee(_arrivals(looks), own)

    def look(self, seen: Seen, families: Families) -> Seen:
        """`seen`, with the processes that read files which have gone. For a thread."""
        return self._removed.look(seen, families)

    def news(self) -> tuple[News, ...]:
        return self._cache.keeper.take_news()

    def over_budget(self) -> str | None:
        return self._cache.keeper.over_budget()

    def _pins(self, looks: Looks, running: _Running, later: Specs) -> Pins:
        wanted = [
            (name, self._cache.needed(spec))
            for name, look in looks.items()
            for spec in _kept_of(look.desired)
        ]
        wanted += [
            (name, self._cache.needed(spec)) for name, specs in later.items() for spec in specs
        ]
        return pins_of([*wanted, *((name, self._held(digest)) for name, digest in running)])

    def _held(self, digest: FilesDigest) -> tuple[Holding, ...]:
        holding = self._cache.holding_of(digest)
        return () if holding is None else (holding,)


def _arrivals(looks: Looks) -> list[Arrival]:
    """What the hub offers of models whose files are not here; what two have in common once."""
    coming: dict[object, Arrival] = {}
    for look in looks.values():
        spec, size_bytes = look.desired.spec, look.offered.size_bytes
        if look.files is not None or size_bytes is None or not look.desired.enabled:
            continue
        address = parse_source(spec.source, spec.file, spec.format)
        if isinstance(address, HubAddress):
            arrival = Arrival(prefix=address.prefix, size_bytes=size_bytes)
            coming.setdefault(files_key(spec, look.offered.offer), arrival)
    return list(coming.values())


def _kept_of(model: DesiredModel) -> tuple[ModelSpec, ...]:
    """Which of the two a disabled model will use is not known."""
    if model.enabled or model.fallback is None:
        return (model.spec,)
    return (model.spec, model.fallback)


def _running(seen: Seen) -> _Running:
    return frozenset(
        (name, view.instance.files_digest) for name, views in seen.views.items() for view in views
    )
