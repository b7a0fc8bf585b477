"""From the answers to a look-up to the agents that it leads to (PURE).

An answer that cannot be the whole truth takes nothing away and brings nothing new.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from reconciler.condition import Reason
from reconciler.plan.peering import Address

LAG_SECONDS = 30.0
"""By how much DNS lags behind the pods (kubernetes/dns#332: 5 to 30 s). So long an address that is
listed no more is still used, and so long after the start this node need not be listed yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """`own`: those of what was found that are this node's; `others` without them. `failure`: why
    there is no answer, a clause; None: there is one."""

    others: frozenset[Address] = frozenset()
    own: frozenset[Address] = frozenset()
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why an answer was not taken up. `step`: what to do."""

    reason: Reason
    said: str
    step: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """Whom one place of `--peers` leads to. Moments in monotonic seconds.

    `known`: the others, each with None, or since when it is listed no more. `own`: as the last
    answer had it. `asked_at`: first of all; `taken_up_at`: the last answer that was. None: not yet.
    """

    known: Mapping[Address, float | None] = field(default_factory=dict)
    own: frozenset[Address] = frozenset()
    asked_at: float | None = None
    taken_up_at: float | None = None
    trouble: Trouble | None = None


NOBODY_YET = Membership()


def after_listed(
    before: Membership, answer: Answer, *, place: Address, now: float, lag: float = LAG_SECONDS
) -> Membership:
    """`place`: one of a list, which leads to whatever it leads to."""
    before = _asked(before, now)
    if answer.failure is not None:
        return replace(before, trouble=_failed(place.host, answer.failure))
    return _taken_up(before, answer, now, lag)


def after_headless(
    before: Membership, answer: Answer, *, place: Address, now: float, lag: float = LAG_SECONDS
) -> Membership:
    """`place`: the name of a headless Service, which leads to every agent, this one too."""
    before = _asked(before, now)
    if answer.failure is not None:
        return replace(before, trouble=_failed(place.host, answer.failure))
    if answer.own:
        return _taken_up(before, answer, now, lag)
    if _is_one(answer.others) and answer.others.isdisjoint(before.known):
        known = _aged(before.known, (), now, lag)
        trouble = _unlisted(before, _virtual(place, answer), now, lag)
        return replace(before, known=known, trouble=trouble)
    return replace(before, trouble=_unlisted(before, _missing(place, answer), now, lag))


def _asked(before: Membership, now: float) -> Membership:
    return before if before.asked_at is not None else replace(before, asked_at=now)


def _taken_up(before: Membership, answer: Answer, now: float, lag: float) -> Membership:
    known = {**_aged(before.known, answer.others, now, lag), **dict.fromkeys(answer.others)}
    return replace(before, known=known, own=answer.own, taken_up_at=now, trouble=None)


def _aged(
    known: Mapping[Address, float | None], listed: Collection[Address], now: float, lag: float
) -> dict[Address, float | None]:
    """Without those that the answers have lacked for long enough."""
    unlisted = {
        address: now if since is None else since
        for address, since in known.items()
        if address not in listed
    }
    return {address: since for address, since in unlisted.items() if now - since < lag}


def _is_one(others: Collection[Address]) -> bool:
    """One address, or one of each family: what a Service with an address of its own has."""
    new = sum(":" in address.host for address in others)
    return new <= 1 and len(others) - new <= 1


def _unlisted(before: Membership, trouble: Trouble, now: float, lag: float) -> Trouble:
    """After a start that is as it should be: DNS does not know this node yet."""
    asked_at = before.asked_at if before.asked_at is not None else now
    if before.taken_up_at is not None or now - asked_at >= lag:
        return trouble
    return Trouble(
        reason=Reason.NOT_READ_YET,
        said=f"{trouble.said}, so far",
        step=f"wait: this agent has just started, and DNS may lag by {lag:.0f} s",
    )


def _failed(name: str, failure: str) -> Trouble:
    return Trouble(
        reason=Reason.LOOKUP_FAILED,
        said=f"cannot look up {name}: {failure}",
        step="see that --peers is right and the name server answers",
    )


def _virtual(place: Address, answer: Answer) -> Trouble:
    return Trouble(
        reason=Reason.NOT_HEADLESS,
        said=f"{place.host} leads to {_listed(answer.others)} alone, which is not this node, as a "
        "Service with an address of its own does",
        step="give the Service clusterIP: None, so that it is headless",
    )


def _missing(place: Address, answer: Answer) -> Trouble:
    return Trouble(
        reason=Reason.SELF_MISSING,
        said=f"{place.host} leads to {_listed(answer.others)}, but not to this node at port "
        f"{place.port}",
        step="see that the Service selects this pod and has publishNotReadyAddresses: true, and "
        "that --listen and --peers have the same port; where addresses are translated, set POD_IP",
    )


def _listed(addresses: Collection[Address]) -> str:
    hosts = sorted({address.host for address in addresses})
    more = f" and {len(hosts) - 3} more" if len(hosts) > 3 else ""
    return ", ".join(hosts[:3]) + more
