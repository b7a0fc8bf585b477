"""Looks, slowly and in the background, whether the hub holds newer pushes of what is here.

`refresh: never`: it is told, and nothing else happens. `refresh: auto`: it is brought beside what
is here (R5); once it is whole the cache gives the new files, and the planner restarts the model.
Until then, and where it fails, the model goes on with what it has, also through a crash. Only where
there is no room for both, and `keep_last_good: false` says so, what is here is given up first.
"""

import asyncio
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import structlog

from reconciler.apply.daemon_thread import in_daemon_thread
from reconciler.apply.meter import Meter
from reconciler.apply.model_tasks import ModelTasks, pause
from reconciler.cache.model_cache import ModelCache
from reconciler.errors import BadCatalog, Damaged, Gone, NoRoom, Transient, XgenError
from reconciler.plan.desired import ModelSpec, Refresh
from reconciler.plan.ids import FilesDigest, ModelName
from reconciler.plan.observed import Push
from reconciler.plan.wording import GIVING_UP_WOULD_DO
from reconciler.status import Doing, Progress

_log = structlog.get_logger("xgen.apply")

AT_ONCE = 2
"""Looks, and pulls, of all models together."""
_MOST_DOUBLINGS = 20
_UNSEEN = "whether the hub holds a newer push cannot be seen"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """In seconds. `first`: before the first look. `between`: the usual pause. `agree`: before the
    look that must agree with one that saw something new; without a catalog that is `between`, for
    files that are copied there one by one. `retry`: after a pull that failed, doubling.
    """

    first: float = 20.0
    between: float = 600.0
    agree: float = 5.0
    retry: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """A model's files that came from the hub. `limit_seconds`: of a pull; None: none.

    `gives_way`: they may go where they leave no room for newer ones.
    """

    spec: ModelSpec
    digest: FilesDigest
    refresh: Refresh
    limit_seconds: float | None
    gives_way: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Noticed:
    """A newer push; `push` None: whether there is one cannot be seen. `reason`: what becomes of it,
    or why, for operators. `progress`: of its pull."""

    push: Push | None
    reason: str
    progress: Progress | None = None


class Pushes:
    """One task a model. A push counts when two looks agree on it. `wake`: there is news."""

    def __init__(
        self, cache: ModelCache, *, wake: Callable[[], None], pace: Pace | None = None
    ) -> None:
        self._cache = cache
        self._wake = wake
        self._pace = pace or Pace()
        self._tasks = ModelTasks("pushes", self._watch)
        self._look_now: dict[ModelName, asyncio.Event] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._pulls = asyncio.Semaphore(AT_ONCE)
        self._noticed: dict[ModelName, Noticed] = {}
        self._meters: dict[ModelName, Meter] = {}

    @property
    def noticed(self) -> Mapping[ModelName, Noticed]:
        """The newer pushes that the hub held when it was asked last."""
        meters = self._meters
        return {
            name: replace(each, progress=meters[name].progress) if name in meters else each
            for name, each in self._noticed.items()
        }

    def watch(self, watched: Mapping[ModelName, Watched]) -> None:
        """These models and no others, from now on."""
        self._tasks.keep(watched)

    def hurry(self, model: ModelName | None) -> None:
        """Look now, not after the pause; a pull under way goes on."""
        for name in tuple(self._look_now) if model is None else (model,):
            if name in self._look_now:
                self._look_now[name].set()

    async def close(self) -> None:
        await self._tasks.close()

    async def _watch(self, model: ModelName, watched: Watched) -> None:
        structlog.contextvars.bind_contextvars(model=model)
        look_now = self._look_now[model] = asyncio.Event()
        try:
            await self._follow(model, watched, look_now)
        finally:
            if self._look_now.get(model) is look_now:
                del self._look_now[model]
                self._note(model, None)

    async def _follow(self, model: ModelName, watched: Watched, look_now: asyncio.Event) -> None:
        pace, seen, failures = self._pace, None, 0
        await pause(pace.first * random.uniform(0.5, 1.5), look_now)
        while True:
            known, push = await self._look(model, watched)
            delay = pace.between * random.uniform(0.8, 1.2)
            if push is None and known:
                self._note(model, None)
            elif push is not None and push != seen:
                failures = 0
                delay = pace.agree if push.verified else delay
            elif push is not None and watched.refresh is Refresh.NEVER:
                self._note(model, Noticed(push=push, reason=_told(push)))
            elif push is not None and push.damaged is not None:
                self._note(model, Noticed(push=push, reason=_damaged(push, push.damaged)))
            elif push is not None:
                asked = await self._take_up(model, watched, push)
                if asked is not None:
                    delay = max(asked, min(delay, pace.retry * 2**failures))
                    failures = min(failures + 1, _MOST_DOUBLINGS)
            seen = push
            await pause(delay, look_now)

    async def _look(self, model: ModelName, watched: Watched) -> tuple[bool, Push | None]:
        """False: the hub does not say, which is noted where it is no matter of the network."""
        found: list[Push | None] = []
        vouched: list[bool] = []
        over = threading.Event()

        def look() -> None:
            found.append(self._cache.newer_push(watched.spec, cancelled=over.is_set))
            here = self._cache.lookup(watched.spec)
            vouched.append(here is not None and here.former == watched.digest)

        try:
            async with self._slots:
                await in_daemon_thread(look, name=f"pushes:{watched.spec.source}")
        except (BadCatalog, Gone) as exc:
            self._note(model, Noticed(push=None, reason=f"{_UNSEEN}: {exc}"))
            return False, None
        except XgenError as exc:
            _log.debug("files cannot be compared with the hub", cause=str(exc))
            return False, None
        finally:
            over.set()
        if any(vouched):
            self._wake()
        return True, found[0]

    async def _take_up(self, model: ModelName, watched: Watched, push: Push) -> float | None:
        """Bring it. None: it is here; else it failed, which is noted, and the hub asks for at least
        so many seconds before another try."""
        over = threading.Event()
        meter = self._meters[model] = Meter(self._wake)
        noticed = Noticed(push=push, reason=f"{_newer(push)}; it is fetched, then taken up")
        self._note(model, noticed)

        def pull() -> None:
            self._cache.refresh(
                watched.spec, on_progress=partial(meter.note, Doing.FETCH), cancelled=over.is_set
            )

        try:
            async with self._pulls, asyncio.timeout(watched.limit_seconds):
                await in_daemon_thread(pull, name=f"refresh:{watched.spec.source}")
        except Damaged as exc:
            self._note(model, replace(noticed, reason=_damaged(push, str(exc))))
            return 0.0
        except (XgenError, TimeoutError) as exc:
            cause = str(exc) or f"not done within {watched.limit_seconds:.0f} s"
            if isinstance(exc, NoRoom) and model in exc.enough_from:
                if watched.gives_way:
                    self._give_way(model, watched, push)
                    return None
                cause += f"; {GIVING_UP_WOULD_DO}"
            self._note(model, replace(noticed, reason=f"{_newer(push)}; {cause}; tried again"))
            return (exc.retry_after_seconds or 0.0) if isinstance(exc, Transient) else 0.0
        finally:
            over.set()
            if self._meters.get(model) is meter:
                del self._meters[model]
        self._note(model, None)
        self._wake()
        return None

    def _give_way(self, model: ModelName, watched: Watched, push: Push) -> None:
        """From now on the newer files are missing ones: the planner has them fetched, and stops
        what serves once it hears that there is no room beside it."""
        self._cache.retire(watched.spec, keep=push.digest)
        self._note(model, None)
        self._wake()

    def _note(self, model: ModelName, noticed: Noticed | None) -> None:
        if self._noticed.get(model) == noticed:
            return
        if noticed is None:
            del self._noticed[model]
        else:
            self._noticed[model] = noticed
        self._wake()


def _newer(push: Push) -> str:
    return f"a newer push is in the hub: digest {push.revision}"


def _told(push: Push) -> str:
    return f"{_newer(push)}; `refresh: auto` or `digest:` takes it up"


def _damaged(push: Push, said: str) -> str:
    return (
        f"{_newer(push)}; {said}; it is fetched once the hub holds another file there, or by "
        "`xgen-model reconcile --retry`"
    )
