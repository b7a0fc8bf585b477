"""Which addresses lead back to this very agent."""

import socket

import pytest

from reconciler.plan.peering import Address
from reconciler.proxy.peers.own_address import is_local, own_address


def at(host: str, port: int = 8000) -> Address:
    return Address(host=host, port=port)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.8.7", "::1"])
def test_the_loopback_is_this_machine(host: str) -> None:
    assert is_local(host)


@pytest.mark.parametrize("host", ["203.0.113.7", "198.51.100.1", "2001:db8::7", "fe80::7%nowhere"])
def test_addresses_of_documentation_are_nobodys(host: str) -> None:
    assert not is_local(host)


def test_the_address_that_this_machine_sends_from_is_its_own() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("203.0.113.7", 9))
        except OSError:
            pytest.skip("this machine has no network")
        host = probe.getsockname()[0]
    assert is_local(host)
    assert own_address(("0.0.0.0", 8000), []).is_own(at(host))


def test_who_listens_everywhere_is_at_all_addresses_of_the_machine() -> None:
    for host in ("0.0.0.0", "::"):
        own = own_address((host, 8000), [None, ""])
        assert own.is_own(at("127.0.0.1"))
        assert own.is_own(at("127.0.0.2"))
        assert not own.is_own(at("203.0.113.7"))


def test_is_shown_as_others_reach_it() -> None:
    assert own_address(("0.0.0.0", 8000), ["203.0.113.7"]).shown == "203.0.113.7:8000"
    assert own_address(("::1", 8000), [None]).shown == "[::1]:8000"
    shown = own_address(("0.0.0.0", 8000), []).shown
    assert shown is None or own_address(("::", 8000), []).is_at(shown)


def test_has_the_hosts_that_it_listens_on() -> None:
    own = own_address(("::", 8000), ["203.0.113.7"])
    every = ("127.0.0.1", "::1", "[::1]", "203.0.113.7", "::ffff:203.0.113.7")
    assert all(
        map(own.is_at, (*every, "127.0.0.1:8000", "[::1]:8000", "[::FFFF:203.0.113.7]:8000"))
    )
    others = ("127.0.0.1:8001", "[::1]:8001", "[::1]:0", "[::1]:", "[::1]8000", "::1:8000", ":8000")
    assert not any(map(own.is_at, ("203.0.113.8", "localhost", "", "gpu-a", *others)))


def test_another_port_of_the_same_host_is_another_agent() -> None:
    assert not own_address(("0.0.0.0", 8000), ["10.0.0.7"]).is_own(at("10.0.0.7", 8001))


def test_another_address_than_the_one_listened_on_is_another_agent() -> None:
    own = own_address(("127.0.0.1", 8000), [])
    assert own.is_own(at("127.0.0.1"))
    assert not own.is_own(at("127.0.0.2"))


def test_a_pods_addresses_are_its_own_wherever_it_runs() -> None:
    own = own_address(("0.0.0.0", 8000), ["203.0.113.7", "::ffff:203.0.113.8", "2001:DB8::7"])
    assert own.is_own(at("203.0.113.7"))
    assert own.is_own(at("203.0.113.8"))
    assert own.is_own(at("2001:db8::7"))
    assert not own.is_own(at("203.0.113.9"))
