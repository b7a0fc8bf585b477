"""The loop's results as tables."""

from collections.abc import Iterable, Sequence
from statistics import median

from tests.bench.git_stalls import Stalls
from tests.bench.markdown import table
from tests.bench.proxy_tables import ratio
from tests.bench.reconcile import LoopResult
from tests.bench.takeover import TakeoverResult
from tests.bench.validating import ValidateResult


def loop_tables(result: LoopResult) -> Iterable[str]:
    yield from _ticks(result)
    yield ""
    yield from table(("a real agent", "", ""), _agents(result))


def takeover_table(result: TakeoverResult) -> Iterable[str]:
    """Of the agent that follows one that was killed."""
    rows = [
        ("it is imported, and has its folder and its address", result.made),
        ("it takes connections", result.listens),
        ("**the model serves again**", result.serves),
        ("CPU until then", result.cpu),
        ("**a spare's model serves again** (since the kill)", result.spare),
        ("a process that imports the largest libraries, to its end", result.imports),
        ("a server of aiohttp, to its first answer", result.server),
    ]
    heads = ("a killed agent's successor", "s since its exec", "÷ the imports", "÷ the server")
    return table(heads, (_since_exec(what, times, result) for what, times in rows))


def validate_table(result: ValidateResult) -> Iterable[str]:
    heads = ("`validate`, CPU ms", *(f"{each.models:,} models" for each in result.manifests))
    rows = [
        ("the whole command", *(_spread(each.command) for each in result.manifests)),
        ("of it the work on the manifest", *(_spread(each.work) for each in result.manifests)),
    ]
    return table(heads, rows)


def _spread(figures: Sequence[float]) -> str:
    return f"{median(figures):.0f} ({min(figures):.0f}–{max(figures):.0f})"


def _since_exec(what: str, times: Sequence[float], result: TakeoverResult) -> Sequence[str]:
    return (
        what,
        f"{median(times):.2f} ({min(times):.2f}–{max(times):.2f})",
        ratio(times, result.imports[: len(times)]),
        ratio(times, result.server[: len(times)]),
    )


def _ticks(result: LoopResult) -> Iterable[str]:
    counts = result.effort.tick_models
    rows: list[Sequence[str]] = []
    for kind in dict.fromkeys(ticks.kind for ticks in result.ticks):
        own = {ticks.models: ticks for ticks in result.ticks if ticks.kind == kind}
        rows.append((f"models {kind}", *(f"{own[count].cpu:.2f}" for count in counts)))
    firsts = ((t.first for t in result.ticks if t.models == count) for count in counts)
    rows.append(
        ("the tick that takes up a new manifest (wall)", *(f"{median(f):.0f}" for f in firsts))
    )
    heads = (f"{count:,} models" for count in counts)
    yield from table(("a tick that finds nothing to do, CPU ms", *heads), rows)


def _stalls(stalls: Stalls) -> Iterable[Sequence[str]]:
    rows = {
        "a push of 1,000 models, from a look to its files": stalls.taken,
        "longest stall of the event loop meanwhile": stalls.pushed,
        "the same, a look that finds nothing new": stalls.same,
        "the same, no look at all": stalls.idle,
    }
    for what, times in rows.items():
        yield what, f"{median(times):.1f} ms", f"{min(times):.1f}–{max(times):.1f} ms"


def _agents(result: LoopResult) -> Iterable[Sequence[str]]:
    for change in result.changes:
        delays = change.delays
        yield (
            f"{change.way} to backend's start, {change.models:,} models",
            f"{median(delays):.0f} ms",
            f"{min(delays):.0f}–{max(delays):.0f} ms",
        )
    yield from _stalls(result.stalls)
    for idle in result.idle:
        yield (
            f"idle, {idle.what}",
            f"{idle.cpu_seconds:.2f} s CPU a minute",
            f"RSS {idle.resident_bytes / 1e6:.0f} MB",
        )
