"""The other agents of the cluster: whether they are found, and answer."""

import asyncio
from collections.abc import Collection, Iterator
from pathlib import Path

import httpx

from reconciler.cli.checks.finding import Finding, fail, ok, skip, warn
from reconciler.condition import Reason
from reconciler.errors import Rejected
from reconciler.plan.peering import Address, DnsPeers, Peering, is_ip
from reconciler.plan.peering_doubts import doubts
from reconciler.plan.peering_text import names_of
from reconciler.proxy.peers.lookup import Hanging, Lookups, NoAnswer, resolved
from reconciler.proxy.peers.membership import (
    NOBODY_YET,
    Answer,
    Membership,
    after_headless,
    after_listed,
)
from reconciler.proxy.peers.own_address import OwnAddress, own_address
from reconciler.proxy.peers.token_file import TokenFile

_LOOKUP_SECONDS = 5.0
_ANSWER_SECONDS = 2.0
_AT_ONCE = 50
_NAMED = 5


def peer_findings(
    peering: Peering | None,
    listen: tuple[str, int],
    pod_ip: str | None,
    *,
    holder: int | None,
) -> Iterator[Finding]:
    """`holder`: the pid of the agent that runs here; without one, others need not know it."""
    if peering is None:
        yield skip("peers", "none are given: this node is alone", "give --peers, for a cluster")
        return
    host, port = listen
    for doubt in doubts(peering, Address(host=host, port=port)):
        yield fail("peers", doubt.said, doubt.step)
    own = own_address((bound(host), port), [pod_ip])
    members = asyncio.run(_members(peering, own))
    for place, member in members.items():
        if (finding := _place(place, member, runs=holder is not None)) is not None:
            yield finding
    known = {address for member in members.values() for address in member.known}
    if ":" not in own.listen.host and isinstance(peering, DnsPeers):
        yield from _of_other_family(peering, known, port)
    if known:
        yield _answers(known, asyncio.run(_silent(known)))


def token_findings(file: Path | None) -> Iterator[Finding]:
    """Nothing where none is given."""
    if file is None:
        return
    try:
        TokenFile(file, clock=lambda: 0.0)
    except Rejected as exc:
        yield fail("cluster token", str(exc), "correct --cluster-token-file")
    else:
        yield ok("cluster token", f"{file} holds one")


def bound(host: str) -> str:
    """As an agent would have it: an address. What leads nowhere is nobody's."""
    if is_ip(host):
        return host
    try:
        return resolved(host)[0]
    except (OSError, UnicodeError):
        return "127.0.0.1"


async def _members(peering: Peering, own: OwnAddress) -> dict[Address, Membership]:
    lookups = Lookups(limit_seconds=_LOOKUP_SECONDS)
    after = after_headless if isinstance(peering, DnsPeers) else after_listed
    return {
        place: after(NOBODY_YET, await _answer(lookups, place, own), place=place, now=0.0, lag=0.0)
        for place in names_of(peering)
    }


async def _answer(lookups: Lookups, place: Address, own: OwnAddress) -> Answer:
    if is_ip(place.host):
        return own.told_apart([place.host], place.port)
    try:
        hosts = await lookups.ask(place.host, lambda: resolved(place.host))
    except Hanging as exc:
        return Answer(failure=f"{exc}, so it was not tried")
    except NoAnswer as exc:
        return Answer(failure=str(exc))
    return own.told_apart(hosts, place.port)


def _place(place: Address, member: Membership, *, runs: bool) -> Finding | None:
    trouble = member.trouble
    if trouble is None:
        if is_ip(place.host):
            return None
        own = " and this node" if member.own else ""
        return ok("peers", f"{place.host} leads to {_counted(member.known)}{own}")
    if trouble.reason is Reason.SELF_MISSING and not runs:
        return warn("peers", f"{trouble.said}, whose agent does not run", trouble.step)
    return fail("peers", trouble.said, trouble.step)


def _of_other_family(peering: DnsPeers, known: Collection[Address], port: int) -> Iterator[Finding]:
    """The agents behind one name are alike: where this one listens for IPv4 alone, they do."""
    if any(":" in address.host for address in known):
        said = f"{peering.name} has IPv6 addresses, and --listen is for IPv4 alone: each agent is "
        step = f"listen on [::]:{port}, which is both, or give the Service IPv4 alone"
        yield warn("peers", f"{said}shown a second time, out of reach", step)


async def _silent(addresses: Collection[Address]) -> dict[Address, str]:
    """Those that do not answer as an agent does, with the reason."""
    slots = asyncio.Semaphore(_AT_ONCE)
    async with httpx.AsyncClient(timeout=_ANSWER_SECONDS, trust_env=False) as client:

        async def ask(address: Address) -> str | None:
            async with slots:
                try:
                    answer = await client.get(f"http://{address}/healthz")
                except (httpx.HTTPError, httpx.InvalidURL) as exc:
                    return str(exc) or type(exc).__name__
            return None if answer.is_success else f"it answers with {answer.status_code}"

        every = sorted(addresses)
        said = await asyncio.gather(*map(ask, every))
    return {address: why for address, why in zip(every, said, strict=True) if why is not None}


def _answers(known: Collection[Address], silent: dict[Address, str]) -> Finding:
    if not silent:
        return ok("peers", f"an answer from {_counted(known)}")
    some = "; ".join(f"{address}: {why}" for address, why in [*silent.items()][:_NAMED])
    more = f"; and {len(silent) - _NAMED} more" if len(silent) > _NAMED else ""
    said = f"no answer from {len(silent)} of {_counted(known)}: {some}{more}"
    return warn("peers", said, "start the agent there, and see that --listen is not its loopback")


def _counted(others: Collection[Address]) -> str:
    return f"{len(others)} other address{'' if len(others) == 1 else 'es'}"
