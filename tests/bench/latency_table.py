"""How soon a change becomes its first action, as a table."""

from collections.abc import Iterable, Sequence
from statistics import median

from tests.bench.latency import Delays, LatencyResult
from tests.bench.markdown import table


def latency_table(result: LatencyResult) -> Iterable[str]:
    heads = (
        *("a change becomes its first action, ms", "models", "p50", "p99", "most"),
        *("longest stall, p50", "p99", "of it our CPU, p99", "CPU of the change", "÷ libyaml's"),
    )
    rows = [_row(delays, result) for delays in result.delays]
    rows += [_idle(models, stalls) for models, stalls in result.idle.items()]
    return table(heads, rows)


def _row(delays: Delays, result: LatencyResult) -> Sequence[str]:
    return (
        delays.way,
        f"{delays.models:,}",
        f"{median(delays.first):.0f}",
        f"**{_p99(delays.first):.0f}**",
        f"{max(delays.first):.0f}",
        f"{median(delays.stall):.0f}",
        f"{_p99(delays.stall):.0f}",
        f"{_p99(delays.busy):.0f}",
        f"{median(delays.cpu):.0f}",
        f"{median(delays.cpu) / median(result.parse[delays.models]):.1f}",
    )


def _idle(models: int, stalls: Sequence[float]) -> Sequence[str]:
    what = f"a process that does nothing, beside {models:,} models"
    stall = (f"{median(stalls):.0f}", f"{_p99(stalls):.0f}")
    return (what, f"{models:,}", "–", "–", "–", *stall, "–", "–", "–")


def _p99(values: Sequence[float]) -> float:
    """The smallest that 99 of 100 do not exceed."""
    return sorted(values)[-(-len(values) * 99 // 100) - 1]
