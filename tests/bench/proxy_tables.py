"""The proxies' results as tables: medians of the rounds.

A ratio is that of two peers in the same round; in brackets, its least and most.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import TypeVar

from tests.bench.bodies import BigBodies, BodiesResult
from tests.bench.ending import Ending, EndingResult
from tests.bench.idle import IdleResult, IdleStreams
from tests.bench.leaving import Leaves, Leaving, LeavingResult
from tests.bench.load import Measured
from tests.bench.markdown import table
from tests.bench.small import Rounds, SmallResult

_LABELS = {
    "agent": "**the agent**",
    "nginx": "nginx `proxy_pass`",
    "vllm-router": "vllm-router (Rust)",
    "aiohttp": "bare ASGI and aiohttp, no routing",
    "connection": "our connection class, a constant (no proxy)",
    "uvicorn": "uvicorn, a constant (no proxy)",
}
_NONE = "–"

M = TypeVar("M", bound=Measured)


def small_table(result: SmallResult) -> Iterable[str]:
    base = reference(result.peers)
    other = result.peers[base]

    def row(own: Rounds) -> Sequence[str]:
        return (
            f"{median(own.cpu_a_request):.0f}",
            ratio(own.cpu_a_request, other.cpu_a_request),
            f"{median(own.cpu_a_chunk):.0f}",
            ratio(own.cpu_a_chunk, other.cpu_a_chunk),
            _added(own, result.direct_p50),
            f"{own.resident_bytes / 1e6:.0f}",
        )

    heads = ("proxy", "CPU a request, µs", f"÷ {base}", "CPU an SSE chunk, µs", f"÷ {base}")
    return table((*heads, "added p50, µs", "RSS, MB"), _rows(result.peers, row, cells=6))


def idle_table(result: IdleResult) -> Iterable[str]:
    streams, rounds = result.effort.streams, result.effort.rounds

    def row(own: IdleStreams) -> Sequence[str]:
        left = own.left_open / rounds
        return (
            f"{median(own.rate_kept):.0%}",
            f"{median(own.cpu_kept):.2f}",
            _figure(own.bytes_a_stream, scale=1e-3),
            _figure(own.silent_cpu, scale=100, digits=1),
            f"{left:,.0f}" if left else "none",
        )

    return table(
        (
            f"with {streams:,} idle streams open",
            "request rate kept",
            "CPU a request × without them",
            "RSS a stream, kB",
            "their CPU while silent, % of a core",
            "open at the upstream when all clients have left",
        ),
        _rows(result.peers, row, cells=5),
    )


def bodies_table(result: BodiesResult) -> Iterable[str]:
    base = reference(result.peers)
    other = result.peers[base]

    def row(own: BigBodies) -> Sequence[str]:
        return (
            f"{median(own.model_first) * 1e3:.0f}",
            ratio(own.model_first, other.model_first),
            f"{median(own.model_last) * 1e3:.0f}",
            ratio(own.model_last, other.model_last),
            _figure(own.growth_bytes, scale=1e-6, sign="+"),
        )

    heads = ("a body of 12 MB", "CPU ms, `model` first", f"÷ {base}", "CPU ms, `model` last")
    return table((*heads, f"÷ {base}", "peak RSS, MB"), _rows(result.peers, row, cells=5))


def leaving_table(result: LeavingResult) -> Iterable[str]:
    def row(own: Leaving) -> Sequence[str]:
        return (
            *(_closed(own.before_byte), _closed(own.midway)),
            f"{own.running:,}" if own.running else "none",
            _figure(own.in_flight),
            _figure(own.files_growth, sign="+"),
            _figure(own.growth_bytes, scale=1e-6, sign="+", digits=1),
        )

    return table(
        (
            "clients that leave",
            "before the first byte",
            "in a silent stream",
            "requests left at the upstream",
            "its own gauge of them",
            "open files",
            "RSS since the first round, MB",
        ),
        _rows(result.peers, row, cells=6),
    )


def ending_table(result: EndingResult) -> Iterable[str]:
    def row(own: Ending) -> Sequence[str]:
        status = "closed without a word" if own.status is None else f"{own.status}"
        return own.midway, f"{status}, asked {own.tries}×"

    heads = ("the upstream's connection ends", "in mid-stream: the client", "before the first byte")
    return table(heads, _rows(result.peers, row, cells=2))


def reference(peers: Mapping[str, Measured]) -> str:
    """Whom the others are compared with: nginx, where it is."""
    return "nginx" if "nginx" in peers and peers["nginx"].fault is None else "uvicorn"


def ratio(own: Sequence[float], other: Sequence[float]) -> str:
    if own is other:
        return "1"
    ratios = [a / b for a, b in zip(own, other, strict=True)]
    return f"{median(ratios):.1f} ({min(ratios):.1f}–{max(ratios):.1f})"


def _rows(
    peers: Mapping[str, M], row: Callable[[M], Sequence[str]], *, cells: int
) -> Iterable[Sequence[str]]:
    for name, label in _LABELS.items():
        if own := peers.get(name):
            fault = own.fault
            figures = (
                row(own) if fault is None else (f"failed: {_cell(fault)}", *[""] * (cells - 1))
            )
            yield label, *figures


def _cell(text: str) -> str:
    return text.replace("|", "/").replace("\n", " ")


def _added(own: Rounds, direct: Sequence[float]) -> str:
    """A server that has no upstream behind it adds nothing: its own time is shown."""
    if not own.is_proxy:
        return f"({median(own.p50):.0f} in all)"
    return f"+{median(p50 - least for p50, least in zip(own.p50, direct, strict=True)):.0f}"


def _closed(leaves: Leaves) -> str:
    if leaves.fault is not None:
        return f"**{_cell(leaves.fault)}**"
    return f"{leaves.left:,}, closed after {median(leaves.delays) * 1e3:.1f} ms"


def _figure(value: float | None, *, scale: float = 1, digits: int = 0, sign: str = "") -> str:
    return _NONE if value is None else f"{value * scale:{sign}.{digits}f}"
