"""Does a loaded backend get on with what it owes? Its progress tells, its health does not (PURE).

vllm#19849, #39863: an engine dies or hangs, and /health answers 200. gonka PR#1421: a busy one was
restarted eight times a day, a hung one was missed. vLLM's counts of prompt tokens move only when a
prefill ends, llama.cpp's only when a batch does, and where all of its threads for HTTP hold
requests its page has to wait: hence so many signs, of which any one will do.
"""

from dataclasses import dataclass, replace

from reconciler.observe.progress import Progress, Untold
from reconciler.plan.wording import span

COMPUTING = 0.02
"""Of one core: who does more does something, be it on a node that has next to nothing left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """One look at a process, at a moment of the agent's clock.

    `owed`: answers that it owes, whose next byte is its to give. `relayed_bytes`: of answers that
    took its work, so far. `counts`: by its own page; None: nothing is owed. `cpu_seconds`: of the
    processes that compute, so far; None: they do on a GPU, and what the CPU does says nothing.
    """

    at: float
    owed: int
    relayed_bytes: int = 0
    counts: Progress | Untold | None = None
    cpu_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulse:
    """What all looks so far say together.

    `progress_at`: the moment of the last progress. `stalled_seconds`: the time since then in which
    something was owed. `told`: the counts as they were told last.
    """

    seen: Sight
    progress_at: float
    stalled_seconds: float = 0.0
    told: Progress | None = None

    @property
    def quiet_seconds(self) -> float:
        """Since the last progress, whether anything was owed or not."""
        return self.seen.at - self.progress_at


def first(sight: Sight) -> Pulse:
    """From here on: what was before does not count."""
    return Pulse(seen=sight, progress_at=sight.at, told=_told(sight))


def after(pulse: Pulse, sight: Sight) -> Pulse:
    """The next look. Time counts as stalled where something was owed at both ends of it."""
    told = _told(sight) or pulse.told
    if _has_moved(pulse, sight):
        return Pulse(seen=sight, progress_at=sight.at, told=told)
    owed = pulse.seen.owed > 0 and sight.owed > 0
    passed = sight.at - pulse.seen.at if owed else 0.0
    return replace(pulse, seen=sight, told=told, stalled_seconds=pulse.stalled_seconds + passed)


def standstill(pulse: Pulse, *, in_flight: int) -> str:
    """What does not move, as a clause: `no progress for 15 min with 3 requests in flight: …`."""
    requests = f"{in_flight or 'no'} request{'s' if in_flight != 1 else ''} in flight"
    said = f"no progress for {span(pulse.stalled_seconds)} with {requests}"
    figures = _figures(pulse.told) if pulse.told is not None else []
    if figures:
        said += f": {', '.join(figures)}"
    if isinstance(pulse.seen.counts, Untold):
        said += f"; its counts do not come any more: {pulse.seen.counts.reason}"
    return said


def _figures(told: Progress) -> list[str]:
    """What is counted, as far as this engine does."""
    figures = [
        f"{name} {value}"
        for name, value in (
            ("tokens", told.generated_tokens),
            ("prompt tokens", told.prompt_tokens),
            ("steps", told.steps),
        )
        if value is not None
    ]
    if told.kv_usage is not None:
        figures.append(f"KV cache {told.kv_usage:.0%}")
    return figures


def _told(sight: Sight) -> Progress | None:
    return sight.counts if isinstance(sight.counts, Progress) else None


def _has_moved(pulse: Pulse, sight: Sight) -> bool:
    before = pulse.seen
    if sight.relayed_bytes > before.relayed_bytes:
        return True
    if isinstance(sight.counts, Progress) and pulse.told is not None:
        return _work(sight.counts) != _work(pulse.told) or _computes(before, sight)
    return _computes(before, sight)


def _work(counts: Progress) -> tuple[object, ...]:
    """Requests that come and wait are no work of the engine's."""
    return counts.prompt_tokens, counts.generated_tokens, counts.steps, counts.kv_usage


def _computes(before: Sight, sight: Sight) -> bool:
    """For somebody: what an idle one does by itself says nothing."""
    if before.owed == 0 or before.cpu_seconds is None or sight.cpu_seconds is None:
        return False
    return sight.cpu_seconds - before.cpu_seconds > COMPUTING * (sight.at - before.at)
