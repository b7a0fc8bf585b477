"""Who the other agents are, as the answers to look-ups tell it over time."""

import asyncio
import socket
import threading
from collections.abc import Callable, Sequence

import pytest

from reconciler.condition import ConditionType, Reason
from reconciler.node.clock import SystemClock
from reconciler.plan.peering import Address
from reconciler.plan.peering_text import parse_peering
from reconciler.proxy.peers.discovery import Discovery, Found, Pace
from reconciler.proxy.peers.own_address import own_address

SERVICE = "dns:agents:8000"


def at(host: str, port: int = 8000) -> Address:
    return Address(host=host, port=port)


class Names:
    """What each name leads to by now; others there are none. `asked`: in this order."""

    def __init__(self, **names: Sequence[str]) -> None:
        self.known: dict[str, Sequence[str]] = dict(names)
        self.asked: list[str] = []

    def __call__(self, name: str) -> Sequence[str]:
        self.asked.append(name)
        if name not in self.known:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return self.known[name]


def discovery(
    peers: str, names: Callable[[str], Sequence[str]], *, lag: float = 0.0, limit: float = 30.0
) -> Discovery:
    """Of an agent at 10.0.0.1."""
    pace = Pace(between=0.001, retry=0.001, limit=limit, lag=lag)
    own = own_address(("10.0.0.1", 8000), [])
    return Discovery(parse_peering(peers), own=own, clock=SystemClock(), resolve=names, pace=pace)


async def test_a_headless_name_leads_to_all_others_of_both_families() -> None:
    names = Names(agents=["10.0.0.3", "fd00::2", "10.0.0.1", "::ffff:10.0.0.2", "10.0.0.3"])
    found = discovery(SERVICE, names)
    assert found.condition().reason is Reason.NOT_READ_YET
    await found.look()
    assert found.current().addresses == (at("10.0.0.2"), at("10.0.0.3"), at("fd00::2"))
    assert found.current().problem is None
    condition = found.condition()
    assert (condition.type, condition.status) == (ConditionType.PEERS_FOUND, "True")
    assert condition.message == "3 other addresses known"


async def test_what_was_found_last_stays_while_the_name_cannot_be_looked_up() -> None:
    names = Names(agents=["10.0.0.1", "10.0.0.2"])
    found = discovery(SERVICE, names)
    await found.look()
    del names.known["agents"]
    await found.look()
    first = found.condition()
    await found.look()
    assert found.current().addresses == (at("10.0.0.2"),)
    assert found.current().problem == found.condition() == first
    assert (first.status, first.reason) == ("False", Reason.LOOKUP_FAILED)
    assert "cannot look up agents: there is no such name (NXDOMAIN)" in first.message
    assert "1 other address known, as of 20" in first.message


async def test_addresses_that_lead_nowhere_are_none() -> None:
    names = Names(agents=["0.0.0.0", "::", "224.0.0.1"])
    found = discovery(SERVICE, names)
    await found.look()
    assert found.current().addresses == ()
    assert found.condition().reason is Reason.LOOKUP_FAILED
    assert "no address that an agent could be reached at" in found.condition().message


async def test_a_service_that_is_not_headless_leaves_the_node_alone_and_says_so() -> None:
    found = discovery(SERVICE, Names(agents=["10.96.0.1"]))
    await found.look()
    assert found.current().addresses == ()
    problem = found.current().problem
    assert problem is not None
    assert problem.reason is Reason.NOT_HEADLESS
    assert "clusterIP: None" in problem.message


async def test_a_node_that_has_just_started_waits_for_its_own_record() -> None:
    names = Names(agents=["10.0.0.2", "10.0.0.3"])
    found = discovery(SERVICE, names, lag=30.0)
    await found.look()
    assert found.current().addresses == ()
    assert (found.condition().status, found.condition().reason) == ("Unknown", Reason.NOT_READ_YET)
    names.known["agents"] = ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    await found.look()
    assert found.current().addresses == (at("10.0.0.2"), at("10.0.0.3"))


@pytest.mark.parametrize("peers", [SERVICE, "agents:8000,10.0.0.3:8000"])
async def test_a_name_that_has_led_nowhere_yet_is_told_until_it_does(peers: str) -> None:
    """Whatever a node does not know may be there."""
    names = Names()
    found = discovery(peers, names)
    before = found.current().unfound
    assert f"{at('agents')} was not looked up yet" in {each.cause for each in before}
    await found.look()
    (unfound,) = found.current().unfound
    assert "cannot look up agents: there is no such name" in unfound.cause
    assert unfound.since == before[0].since
    names.known["agents"] = ["10.0.0.1", "10.0.0.2"]
    await found.look()
    del names.known["agents"]
    await found.look()
    assert found.current().unfound == ()
    assert at("10.0.0.2") in found.current().addresses


async def test_who_is_listed_no_more_is_told() -> None:
    names = Names(agents=["10.0.0.1", "10.0.0.2", "10.0.0.3"])
    found = discovery(SERVICE, names, lag=30.0)
    await found.look()
    names.known["agents"] = ["10.0.0.1", "10.0.0.3"]
    await found.look()
    assert found.current().addresses == (at("10.0.0.2"), at("10.0.0.3"))
    assert found.condition().message == "2 other addresses (listed no more: 10.0.0.2:8000) known"


async def test_a_list_may_name_this_node_and_ports_are_agents_of_their_own() -> None:
    names = Names(b=["10.0.0.2"])
    found = discovery("10.0.0.1:8000,10.0.0.1:8001,b:8000,[::ffff:10.0.0.2]:8000", names)
    await found.look()
    assert found.current().addresses == (at("10.0.0.1", 8001), at("10.0.0.2"))
    assert found.current().problem is None


async def test_one_name_of_a_list_that_is_wrong_hinders_no_other() -> None:
    names = Names(c=["10.0.0.3"])
    found = discovery("b:8000,c:8000,10.0.0.4:8000", names)
    await found.look()
    assert found.current().addresses == (at("10.0.0.3"), at("10.0.0.4"))
    assert "cannot look up b:" in found.condition().message
    names.known["b"] = ["10.0.0.2"]
    await found.look()
    assert found.current().addresses == (at("10.0.0.2"), at("10.0.0.3"), at("10.0.0.4"))
    assert found.condition().status == "True"


async def test_a_name_that_hangs_keeps_the_others_waiting_for_one_turn_alone() -> None:
    names, hangs = Names(c=["10.0.0.3"], d=["10.0.0.4"]), threading.Event()

    def resolve(name: str) -> Sequence[str]:
        if name == "b":
            hangs.wait()
        return names(name)

    found = discovery("b:8000,c:8000,10.0.0.9:8000,d:8000", resolve, limit=0.01)
    try:
        await found.look()
        assert found.current().addresses == (at("10.0.0.9"),)
        assert "cannot look up b: no answer within 0.01 s" in found.condition().message
    finally:
        hangs.set()
    seen = found.current()
    while found.current().addresses != (at("10.0.0.3"), at("10.0.0.4"), at("10.0.0.9")):
        await found.look()
        await asyncio.sleep(0)
    assert seen != found.current()


async def test_an_address_that_led_back_to_us_is_ours_for_as_long_as_it_is_listed() -> None:
    names = Names(b=["10.0.0.2", "10.0.0.3"])
    found = discovery("b:8000", names)
    await found.look()
    found.not_a_peer(at("10.0.0.2"))
    for _ in range(3):
        assert found.current().addresses == (at("10.0.0.3"),)
        await found.look()
    names.known["b"] = ["10.0.0.3"]
    await found.look()
    await found.look()
    names.known["b"] = ["10.0.0.2", "10.0.0.3"]
    await found.look()
    assert found.current().addresses == (at("10.0.0.2"), at("10.0.0.3"))


async def test_a_headless_name_that_leads_back_to_us_by_another_address_is_whole() -> None:
    """Where POD_IP is of one family, and the name leads to addresses of both."""
    names = Names(agents=["10.0.0.1", "fd00::1", "10.0.0.2"])
    found = discovery(SERVICE, names)
    await found.look()
    found.not_a_peer(at("fd00::1"))
    names.known["agents"] = ["fd00::1", "10.0.0.2"]
    await found.look()
    assert found.current().problem is None
    assert found.current().addresses == (at("10.0.0.2"),)


async def test_a_name_with_an_address_of_each_family_is_one_host_until_told_otherwise() -> None:
    names = Names(
        b=["fd00::2", "10.0.0.2"], here=["10.0.0.1", "fd00::1"], two=["10.0.0.5", "10.0.0.6"]
    )
    found = discovery("b:8000,here:8000,two:8000", names)
    await found.look()
    assert found.current().addresses == (at("10.0.0.2"), at("10.0.0.5"), at("10.0.0.6"))
    assert found.current().also == {at("10.0.0.2"): (at("fd00::2"),)}
    found.apart(at("fd00::2"))
    await found.look()
    assert at("fd00::2") in found.current().addresses


async def test_two_addresses_of_one_agent_are_one_peer() -> None:
    names = Names(b=["10.0.0.2", "fd00::2"], c=["10.0.0.3"])
    found = discovery("b:8000,c:8000", names, lag=0.0)
    await found.look()
    found.apart(at("fd00::2"))
    assert found.current().addresses == (at("10.0.0.2"), at("10.0.0.3"), at("fd00::2"))
    found.same_agent(at("10.0.0.2"), at("fd00::2"))
    await found.look()
    assert found.current().addresses == (at("10.0.0.2"), at("10.0.0.3"))
    assert found.current().also == {at("10.0.0.2"): (at("fd00::2"),)}
    assert found.condition().message == "3 other addresses of at most 2 agents known"
    found.same_agent(at("fd00::2"), at("10.0.0.2"))  # the first one broke
    assert found.current().addresses == (at("10.0.0.3"), at("fd00::2"))
    found.apart(at("10.0.0.2"))
    assert found.current().addresses == (at("10.0.0.2"), at("10.0.0.3"), at("fd00::2"))
    found.same_agent(at("10.0.0.2"), at("fd00::2"))
    names.known["b"] = ["fd00::2"]
    await found.look()
    await found.look()
    assert found.current() == Found(addresses=(at("10.0.0.3"), at("fd00::2")))


async def test_what_is_told_of_unknown_addresses_is_not_kept() -> None:
    found = discovery("10.0.0.2:8000", Names())
    await found.look()
    before = found.current()
    found.not_a_peer(at("10.0.0.99"))
    found.same_agent(at("10.0.0.98"), at("10.0.0.2"))
    found.apart(at("10.0.0.97"))
    assert found.current() is before


async def test_it_looks_until_it_is_cancelled_and_tells_what_is_new() -> None:
    names = Names()
    found = discovery(SERVICE, names)
    looking = asyncio.create_task(found.run())
    seen = found.current()
    for hosts in (["10.0.0.1", "10.0.0.2"], ["10.0.0.1", "10.0.0.2", "10.0.0.3"]):
        names.known["agents"] = hosts
        async with asyncio.timeout(30):
            while len(seen.addresses) != len(hosts) - 1:
                seen = await found.newer_than(seen)
    looking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await looking


@pytest.mark.parametrize(
    "error", [ValueError("a bug"), UnicodeError("no label"), OSError(5, "I/O")]
)
async def test_no_error_ends_it(error: Exception) -> None:
    def resolve(name: str) -> Sequence[str]:
        raise error

    found = discovery(SERVICE, resolve)
    await found.look()
    assert found.condition().reason is Reason.LOOKUP_FAILED


async def test_a_resolver_that_tells_nonsense_is_a_failure() -> None:
    found = discovery(SERVICE, Names(agents=["not an address"]))
    await found.look()
    assert found.condition().reason is Reason.LOOKUP_FAILED
