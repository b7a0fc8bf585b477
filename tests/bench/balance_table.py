"""What came of the simulated ways to balance, as Markdown."""

from collections.abc import Iterable, Mapping

from tests.bench.balance import BalanceResult, Figures
from tests.bench.balance_world import GIVE_UP_SECONDS
from tests.bench.markdown import table


def balance_tables(result: BalanceResult) -> Iterable[str]:
    """A row a scenario, and a row a way for requests that belong together."""
    ways = list(next(iter(result.plain.values())))
    bold, *others = ways
    heads = ("simulated: p95, s (p99), failed", f"**{bold}**", *others, "each one's share")
    rows = [
        (scenario, *map(_cell, figures.values()), _shares(figures[bold].shares))
        for scenario, figures in result.plain.items()
    ]
    yield from table(heads, rows)
    for scenario, figures in result.keyed.items():
        yield ""
        yield from _keyed(scenario, figures)


def long_tables(result: BalanceResult) -> Iterable[str]:
    """Every figure."""
    for scenario, figures in {**result.plain, **result.keyed}.items():
        heads = (scenario, "p50, s", "p95", "p99", "shares", "failed", "prefix hits")
        yield from table(heads, [(way, *_all(each)) for way, each in figures.items()])
        yield ""


def _keyed(scenario: str, figures: Mapping[str, Figures]) -> Iterable[str]:
    heads = (f"simulated: {scenario}", "found its prefix", "p50, s", "p95", "p99", "most loaded")
    rows = [
        (
            way,
            f"{each.hits:.0%}",
            *map(_seconds, (each.p50, each.p95, each.p99)),
            f"{max(each.shares):.0%}",
        )
        for way, each in figures.items()
    ]
    return table(heads, rows)


def _cell(figures: Figures) -> str:
    failed = f", {figures.errors:.1%}" if figures.errors >= 0.0005 else ""
    return f"{_seconds(figures.p95)} ({_seconds(figures.p99)}){failed}"


def _all(figures: Figures) -> tuple[str, ...]:
    times = map(_seconds, (figures.p50, figures.p95, figures.p99))
    rest = (_shares(figures.shares), f"{figures.errors:.1%}", f"{figures.hits:.0%}")
    return (*times, *rest)


def _seconds(seconds: float) -> str:
    return f"> {GIVE_UP_SECONDS:.0f}" if seconds > GIVE_UP_SECONDS else f"{seconds:.1f}"


def _shares(shares: tuple[float, ...]) -> str:
    return " ".join(f"{share:.0%}" for share in shares)
