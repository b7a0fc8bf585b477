"""Why a request goes where it goes: as JSON, with every figure (PURE)."""

import msgspec

from reconciler.proxy import balance
from reconciler.proxy.balance import Scored
from reconciler.proxy.replicas import Ranking
from reconciler.proxy.route_table import Choice

_IN_A_HEADER = 8
"""Candidates: clients do not take heads of any size."""


def explained(choice: Choice, ranking: Ranking, found: Scored) -> bytes:
    """On one line, in ASCII."""
    wish = ranking.wish
    shown = balance.explain(
        ranking.every[:_IN_A_HEADER], affinity=wish.affinity, key=wish.key, tie=wish.tie
    )
    told = {"model": choice.name, "node": found.candidate.node, "why": found.why, **shown}
    return msgspec.json.encode(told).decode().encode("ascii", "backslashreplace")
