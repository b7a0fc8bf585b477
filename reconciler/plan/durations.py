"""How long things have taken on this node, and how long they may take again (PURE).

What is told of a load is the median of those of the very files on the very backend, by another
model where its own has none. What other files or another engine took says nothing of it, and is not
scaled.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from reconciler.plan.desired import ModelSpec
from reconciler.plan.ids import SpecHash

_LEAST_BYTES = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadTime:
    """A load that succeeded: from the start of its process to its first real answer.

    `backend`: the id that it ran on. `source` and `file`: as the spec has them. `after_fetch`: its
    files had just come from the hub. `waited_seconds`: from the end of the process before, whose
    place it took, to its own start; 0.0: it took none.
    """

    backend: str
    source: str
    file: str | None
    spec_hash: SpecHash
    seconds: float
    after_fetch: bool = False
    waited_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTime:
    """A stop that succeeded. `drain_seconds`: until its requests had ended, or were not waited for
    any longer; `seconds`: from then on, until nobody of it was left."""

    drain_seconds: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchTime:
    """A download that succeeded, by what came from the hub for it."""

    size_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """Of one model, the newest last."""

    loads: tuple[LoadTime, ...] = ()
    stops: tuple[StopTime, ...] = ()
    fetches: tuple[FetchTime, ...] = ()


UNTIMED = Durations()
"""Of a model that has done nothing here yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """`seconds` None: not known. `why`: where that is from, as a clause."""

    seconds: float | None
    why: str


def expected_load(
    past: Durations,
    *,
    backend: str | None,
    spec: ModelSpec,
    spec_hash: SpecHash,
    after_fetch: bool = False,
    others: Iterable[Durations] = (),
) -> Expected:
    """Of what is most like it: the same spec before another of the same files, and then the same
    state of the files. `backend`: the id that it would run on; None: not known. `others`: of other
    models."""

    def alike(durations: Iterable[Durations]) -> list[LoadTime]:
        return [
            each
            for one in durations
            for each in one.loads
            if (each.source, each.file) == (spec.source, spec.file)
            and backend in (None, each.backend)
        ]

    own = alike([past])
    return _of_loads(
        own or alike(others),
        "" if own else " of another model of the same files",
        backend=backend,
        spec_hash=spec_hash,
        after_fetch=after_fetch,
    )


def expected_stop(past: Durations) -> Expected:
    """From the moment when it gets no new work until nobody of it is left."""
    if not past.stops:
        return Expected(seconds=None, why="it was never stopped here")
    seconds = median(each.drain_seconds + each.seconds for each in past.stops)
    return Expected(seconds=seconds, why=f"{_count(len(past.stops), 'stop')} here")


def expected_wait(past: Durations) -> float:
    """From the end of the process before, whose place it takes, to its start: until its memory is
    free."""
    waits = [each.waited_seconds for each in past.loads if each.waited_seconds > 0.0]
    return median(waits) if waits else 0.0


def expected_fetch(pasts: Iterable[Durations], size_bytes: int) -> Expected:
    """By the rates of earlier downloads of this node, whatever they brought: all come from the
    same hub. Of small ones the rate says nothing."""
    rates = [
        each.size_bytes / each.seconds
        for past in pasts
        for each in past.fetches
        if each.size_bytes >= _LEAST_BYTES and each.seconds > 0.0
    ]
    if size_bytes == 0:
        return Expected(seconds=0.0, why="nothing comes")
    if not rates:
        return Expected(seconds=None, why="nothing large was downloaded here yet")
    why = f"at {median(rates) / 1e6:.0f} MB/s, {_count(len(rates), 'download')} here"
    return Expected(seconds=size_bytes / median(rates), why=why)


def _of_loads(
    alike: Sequence[LoadTime],
    whose: str,
    *,
    backend: str | None,
    spec_hash: SpecHash,
    after_fetch: bool,
) -> Expected:
    if not alike:
        on = f" on {backend}" if backend is not None else ""
        return Expected(seconds=None, why=f"never loaded here{on}")
    same = [each for each in alike if each.spec_hash == spec_hash]
    what = whose or ("" if same else " with another spec")
    chosen = same or alike
    chosen = [each for each in chosen if each.after_fetch == after_fetch] or chosen
    seconds = median(each.seconds for each in chosen)
    return Expected(seconds=seconds, why=f"{_count(len(chosen), 'load')} here{what}")


def _count(number: int, what: str) -> str:
    return f"the last {what}" if number == 1 else f"the median of {number} {what}s"
