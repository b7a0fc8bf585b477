"""Where the other agents are: found out again and again, from what `--peers` says."""

import asyncio
import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import structlog

from reconciler.condition import Condition, ConditionType, Reason
from reconciler.plan.peering import Address, DnsPeers, Peering, is_ip
from reconciler.plan.peering_text import names_of
from reconciler.proxy.peers.lookup import Hanging, Lookups, NoAnswer, Resolve, resolved
from reconciler.proxy.peers.membership import (
    LAG_SECONDS,
    NOBODY_YET,
    Answer,
    Trouble,
    after_headless,
    after_listed,
)
from reconciler.proxy.peers.own_address import OwnAddress
from reconciler.proxy.peers.peer import Unheard
from reconciler.proxy.peers.sameness import Sameness

_log = structlog.get_logger("xgen.peers")

_TOLD = 3
"""Names in one message."""


class Clock(Protocol):
    """`monotonic`: seconds. `wall`: one of its moments as RFC 3339, UTC."""

    def monotonic(self) -> float: ...
    def wall(self, moment: float) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """In seconds. `between`: two looks, give or take a fifth. `retry`: instead, while something is
    amiss. `limit`: after which a name counts as not to be looked up. `lag`: by how much answers may
    be behind the truth."""

    between: float
    retry: float = 5.0
    limit: float = 5.0
    lag: float = LAG_SECONDS


PACE_OF_DNS = Pace(between=5.0)
PACE_OF_LIST = Pace(between=60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """`addresses`: one for each other agent, sorted. `also`: the further addresses of an agent, by
    the one that stands in `addresses`. `unfound`: places that have led nowhere yet. `problem`: why
    what was found last still counts; None: all is fine."""

    addresses: tuple[Address, ...] = ()
    also: Mapping[Address, tuple[Address, ...]] = field(default_factory=dict)
    unfound: tuple[Unheard, ...] = ()
    problem: Condition | None = None


class Discovery:
    """`run` looks; all else may be called at any time from the event loop's thread."""

    def __init__(
        self,
        peering: Peering,
        *,
        own: OwnAddress,
        clock: Clock,
        resolve: Resolve = resolved,
        pace: Pace | None = None,
    ) -> None:
        self._headless = isinstance(peering, DnsPeers)
        self._members = dict.fromkeys(names_of(peering), NOBODY_YET)
        self._own = own
        self._clock = clock
        self._resolve = resolve
        self._pace = pace or (PACE_OF_DNS if self._headless else PACE_OF_LIST)
        self._lookups = Lookups(limit_seconds=self._pace.limit)
        self._selves: set[Address] = set()
        self._sameness = Sameness()
        self._began = clock.wall(clock.monotonic())
        self._found = Found(unfound=self._unfound())
        self._news = asyncio.Event()
        self._condition = _condition(None, Reason.NOT_READ_YET, "not looked up yet", self._began)

    def current(self) -> Found:
        return self._found

    async def newer_than(self, seen: Found) -> Found:
        """Wait until what is known is not `seen`."""
        while self._found is seen:
            await self._news.wait()
        return self._found

    def condition(self) -> Condition:
        """`PeersFound`, as it is now."""
        return self._condition

    def not_a_peer(self, address: Address) -> None:
        """Behind it is this very agent. It counts as our own for as long as it is listed."""
        self._selves.add(address)
        self._sameness.part(address)
        self._renew()

    def same_agent(self, address: Address, other: Address) -> None:
        """Behind both is one agent, and `address` is the one to use from now on; `other` stands in
        `also`. The last call decides, so that a broken one can be swapped for the other."""
        self._sameness.join(address, other)
        self._renew()

    def apart(self, address: Address) -> None:
        """Takes `same_agent` back: behind it is another agent by now."""
        self._sameness.part(address)
        self._renew()

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await self.look()
            pace = self._pace
            amiss = self._condition.status != "True"
            seconds = min(pace.retry, pace.between) if amiss else pace.between
            await asyncio.sleep(seconds * random.uniform(0.8, 1.2))

    async def look(self) -> None:
        """Once. Those that were not asked for longest go first: one that hangs keeps no other from
        its turn for good."""
        for place in list(self._members):
            try:
                answer = await self._ask(place)
            except Hanging:
                continue
            except NoAnswer as exc:
                answer = Answer(failure=str(exc))
            except Exception as exc:  # noqa: BLE001  the task's boundary: it is told, and tried again
                answer = Answer(failure=f"the agent fails with an error of its own: {exc!r}")
            if self._take(place, answer) and not is_ip(place.host):
                self._renew()  # the next name may take its time
        self._renew()

    async def _ask(self, place: Address) -> Answer:
        others = self._members[place].known
        if is_ip(place.host):
            answer = self._own.told_apart([place.host], place.port, others=others)
        else:
            look_up = partial(self._look_up, place, others)
            answer = await self._lookups.ask(place.host, look_up)
        own = answer.own | (answer.others & self._selves)
        if own and not self._headless and _is_one_host(answer):
            own = answer.own | answer.others
        return replace(answer, others=answer.others - own, own=own)

    def _look_up(self, place: Address, others: Collection[Address]) -> Answer:
        return self._own.told_apart(self._resolve(place.host), place.port, others=others)

    def _take(self, place: Address, answer: Answer) -> bool:
        """Whether it changed anything."""
        after = after_headless if self._headless else after_listed
        before = self._members.pop(place)
        now, lag = self._clock.monotonic(), self._pace.lag
        member = after(before, answer, place=place, now=now, lag=lag)
        self._members[place] = member
        new = answer.others - before.known.keys()
        if not self._headless and len(new) == 2 and _is_one_host(answer):
            self._sameness.join(*sorted(new, key=lambda each: ":" in each.host))
        return (member.known, member.trouble) != (before.known, before.trouble)

    def _renew(self) -> None:
        listed: set[Address] = set()
        leaving: set[Address] = set()
        for member in self._members.values():
            for address, since in member.known.items():
                (listed if since is None else leaving).add(address)
        own = frozenset[Address]().union(*(each.own for each in self._members.values()))
        self._selves &= listed | leaving | own
        known = (listed | leaving) - self._selves - own
        self._sameness.keep(known)
        listing = self._sameness.listing(known)
        self._set_condition(_words(len(listing), known, listed))
        problem = None if self._condition.status == "True" else self._condition
        found = Found(
            addresses=tuple(listing),
            also={address: also for address, also in listing.items() if also},
            unfound=self._unfound(),
            problem=problem,
        )
        if found != self._found:
            self._tell(found)
            self._found = found
            news, self._news = self._news, asyncio.Event()
            news.set()

    def _unfound(self) -> tuple[Unheard, ...]:
        """In alphabetical order: that in which they are asked changes."""
        causes = [
            each.trouble.said if each.trouble is not None else f"{place} was not looked up yet"
            for place, each in self._members.items()
            if each.taken_up_at is None
        ]
        return tuple(Unheard(cause=cause, since=self._began) for cause in sorted(causes))

    def _set_condition(self, agents: str) -> None:
        """`agents`: the addresses that are known, in words: what answers there may be none."""
        troubles = [each.trouble for each in self._members.values() if each.trouble is not None]
        if troubles:
            reason, message = troubles[0].reason, f"{_told(troubles)}; {self._kept(agents)}"
            status = None if reason is Reason.NOT_READ_YET else False
        elif all(each.taken_up_at is not None for each in self._members.values()):
            status, reason, message = True, Reason.FOUND, f"{agents} known"
        else:
            return
        now = self._clock.wall(self._clock.monotonic())
        condition = _condition(status, reason, message, now)
        before = self._condition
        if (condition.status, condition.reason) == (before.status, before.reason):
            condition = _condition(status, reason, message, before.since)
        self._condition = condition

    def _kept(self, agents: str) -> str:
        """What stays in force, and as of when."""
        taken_up = [
            each.taken_up_at
            for each in self._members.values()
            if each.trouble is not None and each.taken_up_at is not None
        ]
        if not taken_up:
            return f"{agents} known so far"
        return f"{agents} known, as of {self._clock.wall(min(taken_up))}"

    def _tell(self, found: Found) -> None:
        before, now = set(self._found.addresses), set(found.addresses)
        if before != now:
            new, gone = sorted(map(str, now - before)), sorted(map(str, before - now))
            _log.info("peers changed", new=new, gone=gone, count=len(now))
        was, reason = _fault(self._found), _fault(found)
        if reason is not None and reason is not was:
            _log.warning("peers cannot be found", reason=self._condition.message)
        elif was is not None and reason is None:
            _log.info("peers can be found again")


def _fault(found: Found) -> Reason | None:
    """What an operator may want to look at."""
    return found.problem.reason if found.problem and found.problem.is_abnormal else None


def _is_one_host(answer: Answer) -> bool:
    """A name of a list with one address of each family: they are taken for one agent's, of which
    the second is used where the first does not answer, until they turn out to be two."""
    addresses = [*answer.own, *answer.others]
    return len(addresses) == 2 and sum(":" in each.host for each in addresses) == 1


def _words(count: int, known: set[Address], listed: set[Address]) -> str:
    agents = f"{len(known)} other address{'' if len(known) == 1 else 'es'}"
    if len(known) != count:
        agents += f" of at most {count} agent{'' if count == 1 else 's'}"
    leaving = known - listed
    if not leaving:
        return agents
    some = ", ".join(map(str, sorted(leaving)[:_TOLD]))
    more = f" and {len(leaving) - _TOLD} more" if len(leaving) > _TOLD else ""
    return f"{agents} (listed no more: {some}{more})"


def _told(troubles: list[Trouble]) -> str:
    said = "; ".join(f"{each.said} ({each.step})" for each in troubles[:_TOLD])
    more = len(troubles) - _TOLD
    return f"{said}; and {more} more" if more > 0 else said


def _condition(status: bool | None, reason: Reason, message: str, since: str) -> Condition:
    return Condition(
        type=ConditionType.PEERS_FOUND,
        status="Unknown" if status is None else str(status),
        reason=reason,
        message=message,
        since=since,
    )
