"""Our figures beside those of an earlier comparison, on another day."""

from collections.abc import Iterable
from statistics import median

from tests.bench.idle import IdleResult
from tests.bench.markdown import table
from tests.bench.proxy_tables import reference
from tests.bench.small import SmallResult

_EARLIER = (
    ("our first proxy on aiohttp, passing on only", "aiohttp", "7.4", "1.8", "21"),
    ("the same with routing, watching and metrics", "agent", "about 9", "–", "–"),
    ("vllm-router 0.1.17", "vllm-router", "4.1", "1.2", "84"),
)
"""What, its peer now, CPU a request ÷ nginx, CPU an SSE chunk ÷ nginx, kB an idle stream."""


def published_table(small: SmallResult, idle: IdleResult) -> Iterable[str]:
    """Earlier and now, of those that were measured."""
    base = reference(small.peers)
    other = small.peers[base]
    rows: list[tuple[str, ...]] = []
    for what, name, request, chunk, stream in _EARLIER:
        own, silent = small.peers.get(name), idle.peers.get(name)
        if own is None or silent is None or own.fault or silent.bytes_a_stream is None:
            now = ("not measured",) * 3
        else:
            now = (
                f"{median(own.cpu_a_request) / median(other.cpu_a_request):.1f}",
                f"{median(own.cpu_a_chunk) / median(other.cpu_a_chunk):.1f}",
                f"{silent.bytes_a_stream / 1e3:.0f}",
            )
        pairs = zip((request, chunk, stream), now, strict=True)
        rows.append((what, *(cell for pair in pairs for cell in pair)))
    heads = (
        *("CPU a request ÷ nginx, then", f"÷ {base}, now"),
        *("CPU an SSE chunk ÷ nginx, then", f"÷ {base}, now"),
        *("kB an idle stream, then", "now"),
    )
    return table(("against the published figures", *heads), rows)
