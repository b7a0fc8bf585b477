"""How far a backend is with its work, by the engine's own counts (design §8)."""

import math
from dataclasses import dataclass
from typing import Protocol

from prometheus_client.parser import text_string_to_metric_families

from reconciler.errors import Transient
from reconciler.observe.engine_pages import EnginePages
from reconciler.observe.reply import Address


class Names(Protocol):
    """As `backend.launch.Counters`."""

    @property
    def metrics_path(self) -> str | None: ...
    @property
    def prompt_tokens(self) -> str | None: ...
    @property
    def generated_tokens(self) -> str | None: ...
    @property
    def steps(self) -> str | None: ...
    @property
    def running(self) -> str | None: ...
    @property
    def waiting(self) -> str | None: ...
    @property
    def kv_usage(self) -> str | None: ...


class Counting(Address, Protocol):
    """As `backend.launch.Launch`."""

    @property
    def counters(self) -> Names: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One look at an engine's counts. None: it does not say.

    Tokens, and `steps` through the model, since the start of its process; `running` and `waiting`:
    requests; `kv_usage`: 0 to 1, of the fullest where the engine has several caches.
    """

    prompt_tokens: int | None = None
    generated_tokens: int | None = None
    steps: int | None = None
    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Untold:
    """Nothing could be learnt. `reason`: a sentence. `uncounted`: its page came, and has none of
    the counts, nor will have."""

    reason: str
    uncounted: bool = False


async def read_progress(
    pages: EnginePages, backend: Counting, *, seconds: float | None = None
) -> Progress | Untold:
    """Ask one backend once. Never raises for what the other side does or does not.

    `seconds`: as in `EnginePages.read`.
    """
    path = backend.counters.metrics_path
    if path is None:
        return Untold(reason="this engine counts nothing", uncounted=True)
    try:
        page = await pages.read(backend, path, seconds=seconds)
    except Transient as exc:
        return Untold(reason=str(exc))
    return progress_of(page, backend.counters)


def progress_of(page: str, names: Names) -> Progress | Untold:
    """What a page says under these names (PURE)."""
    known = (
        names.prompt_tokens,
        names.generated_tokens,
        names.steps,
        names.running,
        names.waiting,
        names.kv_usage,
    )
    wanted = tuple(name for name in known if name is not None)
    try:
        values = _values(page, wanted)
    except ValueError as exc:
        return Untold(reason=f"cannot read the engine's counts: {exc}")
    if not values:
        reason = f"cannot find any of {', '.join(wanted)} on the engine's page"
        return Untold(reason=reason, uncounted=True)

    def total(name: str | None) -> int | None:
        return int(sum(values[name])) if name in values else None

    usage = names.kv_usage
    return Progress(
        prompt_tokens=total(names.prompt_tokens),
        generated_tokens=total(names.generated_tokens),
        steps=total(names.steps),
        running=total(names.running),
        waiting=total(names.waiting),
        kv_usage=max(values[usage]) if usage in values else None,
    )


def _values(page: str, wanted: tuple[str, ...]) -> dict[str | None, list[float]]:
    """Of each wanted name that is there, one value a series (an engine may count by its parts).

    Only its lines are parsed: vLLM's page has a thousand others.
    """
    lines = "\n".join(line for line in page.split("\n") if line.startswith(wanted))
    values: dict[str | None, list[float]] = {}
    for family in text_string_to_metric_families(f"{lines}\n"):
        for sample in family.samples:
            if sample.name in wanted:
                if not math.isfinite(sample.value):
                    raise ValueError(f"{sample.name} is {sample.value}")
                values.setdefault(sample.name, []).append(sample.value)
    return values
