"""What following other agents costs, as Markdown."""

import statistics
from collections.abc import Iterable

from tests.bench.cluster import ClusterResult, Cost
from tests.bench.markdown import table

_HEADS = (
    "an agent that follows others",
    "CPU s a minute: nothing changes",
    "each changes every second",
    "questions a second",
    "and then",
    "open files",
    "RSS, MB",
    "a change is known after, s",
    "at most",
    "`/servers`, kB",
    "CPU ms",
)


def cluster_table(result: ClusterResult) -> Iterable[str]:
    return table(_HEADS, map(_row, result.costs))


def _row(cost: Cost) -> tuple[str, ...]:
    return (
        f"{cost.peers:,}" if cost.peers else "none",
        f"{cost.quiet_cpu:.2f}",
        f"{cost.busy_cpu:.2f}",
        f"{cost.quiet_polls:.1f}",
        f"{cost.busy_polls:.1f}",
        str(cost.files),
        f"{cost.resident / 1e6:.0f}",
        f"{statistics.median(cost.ages):.2f}" if cost.ages else "–",
        f"{max(cost.ages):.2f}" if cost.ages else "–",
        f"{cost.view_bytes / 1000:,.0f}",
        f"{cost.view_cpu_ms:.1f}",
    )
