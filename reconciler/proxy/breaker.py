"""Where nothing is sent for a while because it failed there (PURE: `now` is given).

    CLOSED ──3 of the last 5 failed, within 30 s──▶ OPEN ──its pause is over──▶ HALF_OPEN
       ▲                                             ▲                            │ one request
       └──an answer to one that began since──────────┤                            ▼
                                                     └──────it failed────────  PROBING

Each opening that follows a failed probe, or comes soon after the last, pauses twice as long. What
says nothing of the replica counts for nothing: a 4xx, a 429, a 503 with Retry-After, and a client
that left (sglang#25811).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from http import HTTPStatus

from reconciler.plan.ids import ModelName
from reconciler.plan.peering import Address

FAILURES = 3
OF_LAST = 5
WITHIN_SECONDS = 30.0
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0


class Standing(StrEnum):
    """`HALF_OPEN`: one request may go there and is the probe. `PROBING`: that is under way."""

    CLOSED = "closed"
    HALF_OPEN = "half-open"
    PROBING = "probing"
    OPEN = "open"


class Outcome(StrEnum):
    """`NEITHER`: it says nothing of the replica."""

    SERVED = "served"
    FAILED = "failed"
    NEITHER = "neither"


def outcome_of(status: int, *, retry_after: bool) -> Outcome:
    """Of an answer's head. `retry_after`: it has that header."""
    if status == HTTPStatus.SERVICE_UNAVAILABLE and retry_after:
        return Outcome.NEITHER
    if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return Outcome.FAILED
    return Outcome.NEITHER if status >= HTTPStatus.BAD_REQUEST else Outcome.SERVED


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One request there. `opening`: how often the breaker had opened when it began."""

    opening: int
    probe: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """`outcomes`: when, and whether it failed; the newest last. `openings`: since ever; `pauses`:
    those whose pauses add up. `until`: of the pause; None: closed. Seconds are monotonic."""

    outcomes: tuple[tuple[float, bool], ...] = ()
    openings: int = 0
    pauses: int = 0
    until: float | None = None
    probing: bool = False
    closed_at: float | None = None

    def standing(self, now: float) -> Standing:
        if self.until is None:
            return Standing.CLOSED
        if self.probing:
            return Standing.PROBING
        return Standing.OPEN if now < self.until else Standing.HALF_OPEN

    def retry_seconds(self, now: float) -> float:
        """Until a probe may go."""
        return 0.0 if self.until is None else max(0.0, self.until - now)

    def began(self, now: float) -> tuple["Breaker", Attempt]:
        """A request is sent there, whatever the standing: the first one while it is not closed is
        the probe."""
        probe = self.standing(now) in (Standing.HALF_OPEN, Standing.OPEN)
        attempt = Attempt(opening=self.openings, probe=probe)
        return (replace(self, probing=True) if probe else self), attempt

    def ended(self, attempt: Attempt, outcome: Outcome, now: float) -> "Breaker":
        """Its answer began, or never will. What began before the last opening says nothing."""
        if attempt.opening != self.openings:
            return self
        if self.until is None:
            return self._counted(outcome, now)
        if outcome is Outcome.SERVED:
            return replace(self, until=None, probing=False, outcomes=(), closed_at=now)
        if not attempt.probe:
            return self
        released = replace(self, probing=False)
        return released._opened(now) if outcome is Outcome.FAILED else released

    def _counted(self, outcome: Outcome, now: float) -> "Breaker":
        if outcome is Outcome.NEITHER:
            return self
        recent = [each for each in self.outcomes if each[0] > now - WITHIN_SECONDS]
        outcomes = (*recent, (now, outcome is Outcome.FAILED))[-OF_LAST:]
        if sum(failed for _, failed in outcomes) < FAILURES:
            return replace(self, outcomes=outcomes)
        soon = self.closed_at is not None and now - self.closed_at < WITHIN_SECONDS
        return replace(self, pauses=self.pauses if soon else 0)._opened(now)

    def _opened(self, now: float) -> "Breaker":
        pause = min(FIRST_PAUSE_SECONDS * 2**self.pauses, LONGEST_PAUSE_SECONDS)
        return replace(
            self,
            outcomes=(),
            openings=self.openings + 1,
            pauses=min(self.pauses + 1, 16),
            until=now + pause,
        )


CLOSED = Breaker()

Replica = tuple[Address | None, ModelName]
"""Where: None: this node."""


class Breakers:
    """Those of all replicas; what never failed takes no room. Every `began` has its one `ended`."""

    def __init__(self) -> None:
        self._breakers: dict[Replica, Breaker] = {}

    def standing(self, replica: Replica, now: float) -> Standing:
        return self._breakers.get(replica, CLOSED).standing(now)

    def retry_seconds(self, replica: Replica, now: float) -> float:
        return self._breakers.get(replica, CLOSED).retry_seconds(now)

    def began(self, replica: Replica, now: float) -> Attempt:
        after, attempt = self._breakers.get(replica, CLOSED).began(now)
        self._keep(replica, after)
        return attempt

    def ended(self, replica: Replica, attempt: Attempt, outcome: Outcome, now: float) -> None:
        before = self._breakers.get(replica, CLOSED)
        self._keep(replica, before.ended(attempt, outcome, now))

    def keep_only(self, replicas: Iterable[Replica]) -> None:
        """Forget the others."""
        for gone in self._breakers.keys() - set(replicas):
            del self._breakers[gone]

    def _keep(self, replica: Replica, breaker: Breaker) -> None:
        if breaker == CLOSED:
            self._breakers.pop(replica, None)
        else:
            self._breakers[replica] = breaker
