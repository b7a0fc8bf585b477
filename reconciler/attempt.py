"""A revision of the manifest, and what came of it on this node (PURE)."""

from dataclasses import dataclass
from enum import StrEnum

KEPT = 20
"""Revisions, the newest ones."""


class Outcome(StrEnum):
    """`failed`: in part; what waits is not over. All but `waiting` are outcomes that may stay."""

    WAITING = "waiting"
    APPLIED = "applied"
    REFUSED = "refused"
    FAILED = "failed"
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """A model that is not as a revision wants it. `reason`: why, as a sentence."""

    model: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """`seen_at`, `settled_at`: RFC 3339, UTC; `settled_at` None: it is not over. `seconds`: from
    the one to the other. `reason`: the outcome, as a sentence. `models`: those that are not as it
    wants them, or were not when a newer one came. `problems`: its errors, with their places.
    `note`: of a commit, its subject and author; empty: none is known."""

    revision: str
    seen_at: str
    outcome: Outcome
    reason: str
    settled_at: str | None = None
    seconds: float | None = None
    models: tuple[Shortfall, ...] = ()
    problems: tuple[str, ...] = ()
    note: str = ""
