"""The results as Markdown: the tables that are printed, and `docs/performance.md` around them."""

from collections.abc import Callable, Iterable, Sequence
from statistics import median

from tests.bench.proxy import CONNECTIONS, STREAMS, ProxyResult, Rounds
from tests.bench.reconcile import LoopResult
from tests.bench.wire import INTERVAL_SECONDS

_LABELS = {
    "agent": "**the agent**",
    "aiohttp": "bare ASGI and aiohttp, no routing",
    "floor": "uvicorn, a constant answer (no proxy)",
    "nginx": "nginx `proxy_pass`",
}


def tables(proxy: ProxyResult, loop: LoopResult) -> str:
    """Medians. A ratio is that of two peers in the same round; in brackets, its least and most."""
    return "\n".join((*_proxy_table(proxy), "", *_tick_table(loop), "", *_agent_table(loop)))


def page(proxy: ProxyResult, loop: LoopResult, *, date: str) -> str:
    """`docs/performance.md`. `date`: of the run."""
    return _PAGE.format(
        date=date,
        tables=tables(proxy, loop),
        rounds=proxy.effort.rounds,
        requests=proxy.effort.requests,
        connections=CONNECTIONS,
        streams=STREAMS,
        chunks=round(1 / INTERVAL_SECONDS),
        changes=loop.effort.changes,
        ticks=loop.effort.ticks,
        idle=loop.effort.idle_seconds,
    )


def _proxy_table(result: ProxyResult) -> Iterable[str]:
    against = [name for name in ("floor", "nginx") if name in result.peers]
    ratios = [f"÷ {'uvicorn' if name == 'floor' else name}" for name in against]
    yield _row(
        "proxy",
        *("CPU a request, µs", *ratios, "CPU an SSE chunk, µs", *ratios),
        *("added p50, µs", "RSS, MB"),
    )
    yield _row("---", *["---:"] * (4 + 2 * len(against)))
    for name, label in _LABELS.items():
        if name in result.peers:
            rounds = result.peers[name]
            yield _row(
                label,
                f"{median(rounds.cpu_a_request):.0f}",
                *(_ratio(rounds, result.peers[other], _requests) for other in against),
                f"{median(rounds.cpu_a_chunk):.0f}",
                *(_ratio(rounds, result.peers[other], _chunks) for other in against),
                _added(rounds, result),
                f"{rounds.resident_bytes / 1e6:.0f}",
            )
    for name, why in result.absent.items():
        yield f"\n{name} was **not measured**: {why}."


def _requests(rounds: Rounds) -> Sequence[float]:
    return rounds.cpu_a_request


def _chunks(rounds: Rounds) -> Sequence[float]:
    return rounds.cpu_a_chunk


def _ratio(own: Rounds, other: Rounds, of: Callable[[Rounds], Sequence[float]]) -> str:
    if own is other:
        return "1"
    ratios = [a / b for a, b in zip(of(own), of(other), strict=True)]
    return f"{median(ratios):.1f} ({min(ratios):.1f}–{max(ratios):.1f})"


def _added(rounds: Rounds, result: ProxyResult) -> str:
    """A server that has no upstream behind it adds nothing: its own time is shown."""
    if rounds is result.peers["floor"]:
        return f"({median(rounds.p50):.0f} in all)"
    added = [p50 - direct for p50, direct in zip(rounds.p50, result.direct_p50, strict=True)]
    return f"+{median(added):.0f}"


def _tick_table(result: LoopResult) -> Iterable[str]:
    counts = result.effort.tick_models
    yield _row(
        "a tick that finds nothing to do, CPU ms", *(f"{count:,} models" for count in counts)
    )
    yield _row("---", *["---:"] * len(counts))
    for kind in dict.fromkeys(ticks.kind for ticks in result.ticks):
        own = {ticks.models: ticks for ticks in result.ticks if ticks.kind == kind}
        yield _row(f"models {kind}", *(f"{own[count].cpu:.2f}" for count in counts))
    firsts = ((t.first for t in result.ticks if t.models == count) for count in counts)
    yield _row(
        "the tick that takes up a new manifest (wall)", *(f"{median(f):.0f}" for f in firsts)
    )


def _agent_table(result: LoopResult) -> Iterable[str]:
    yield _row("a real agent", "", "")
    yield _row("---", "---:", "---:")
    for change in result.changes:
        delays = change.delays
        yield _row(
            f"{change.way} to backend's start, {change.models:,} models",
            f"{median(delays):.0f} ms",
            f"{min(delays):.0f}–{max(delays):.0f} ms",
        )
    for idle in result.idle:
        yield _row(
            f"idle, {idle.what}",
            f"{idle.cpu_seconds:.2f} s CPU a minute",
            f"RSS {idle.resident_bytes / 1e6:.0f} MB",
        )


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


_PAGE = """\
# Performance

Written by `make bench` on {date}; do not edit. Absolute figures are those of one machine with two
cores that others load too: compare only within a table, best by the ratios.

{tables}

## Method

**Proxy.** All servers run at once, each in one process, and are measured in turns; {rounds} rounds,
each begun with another server. Figures are medians of the rounds, a ratio is taken within a round
(in brackets: least and most). CPU is user and system time of the server's process, from the kernel,
never wall clock.
The agent is `xgen-model run` as operators start it: routing, the look into the body, the watch over
the client and the accounting are in its figures. All proxies have the same upstream, the agent's
backend, which answers constants. Every answer is compared with what the upstream sent.

- *A request*: a chat completion of some 170 bytes, {requests:,} a round over {connections} busy
  connections.
- *An SSE chunk*: {streams} streams side by side, {chunks} chunks a second each, all at the same
  moment, as a batching engine gives them. uvicorn's own figure includes a timer a chunk.
- *Added p50*: on one connection that is otherwise idle, less the upstream's own.
- *bare ASGI and aiohttp* passes requests on and does nothing else: what is above it is our routing,
  headers, watching and counting, what is below it is the HTTP client.

**Loop.** A tick is the real loop's with a real cache and real engines, {ticks} in a row; its CPU is
that of all threads. Suspended models are fully looked up and planned, but nothing is started.
A change switches one model on, all others are for other nodes ({changes} changes each, every text a
new one); it ends when the backend's process runs. Plain files count when two reads 250 ms apart
agree; a swapped link counts at once. Idle agents are watched for {idle:.0f} s.
"""
