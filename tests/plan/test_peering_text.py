"""`--peers` as it is written."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.plan.peering import Address, DnsPeers, ListedPeers, normal_host
from reconciler.plan.peering_doubts import doubts
from reconciler.plan.peering_text import parse_peering, written


def at(host: str, port: int = 8000) -> Address:
    return Address(host=host, port=port)


def listed(*addresses: Address) -> ListedPeers:
    return ListedPeers(addresses=addresses)


@pytest.mark.parametrize(
    ("text", "peering"),
    [
        ("dns:x.llm.svc.cluster.local.:80", DnsPeers(name="x.llm.svc.cluster.local.", port=80)),
        ("DNS:Agents:80", DnsPeers(name="agents", port=80)),
        ("a:8000", listed(at("a"))),
        (" a:8000 , 10.0.0.7:9 ", listed(at("a"), at("10.0.0.7", 9))),
        ("[FD00::1]:8000,[::ffff:a00:7]:8000", listed(at("fd00::1"), at("10.0.0.7"))),
        ("[fe80::1%eth0]:8000", listed(at("fe80::1%eth0"))),
        ("a:8000,A:8000,a:8001", listed(at("a"), at("a", 8001))),
        ("dns-1:8000", listed(at("dns-1"))),
    ],
)
def test_says_who_the_peers_are(text: str, peering: DnsPeers | ListedPeers) -> None:
    assert parse_peering(text) == peering


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "dns:NAME:PORT"),
        ("a:8000,", "an address is missing"),
        ("a:8000,gpu-b", "'gpu-b' has no port: write gpu-b:8000"),
        ("a:8000,b:0", "'b:0': '0' is no port"),
        ("b:70000", "'70000' is no port"),
        ("b:८", "is no port"),
        ("http://b:8000", "without http://"),
        ("::1:8000:x", "is no port"),
        ("fd00::1", r"write \[fd00::1\]:8000"),
        ("::1:8000", r"no brackets: write \[::1\]:8000"),
        ("fd00::1:f000", r"write \[fd00::1:f000\]:8000"),
        ("[fd00::1]", r"'\[fd00::1\]' has no port"),
        ("[b]:8000", "'b' is no IPv6 address"),
        ("fd00:x:8000", "stands in brackets"),
        ("0.0.0.0:8000", "no agent can be reached at 0.0.0.0"),
        ("10.0.0.256:8000", "'10.0.0.256' is neither"),
        ("a..b:8000", "'a..b' is neither"),
        ("a b:8000", "'a b' is neither"),
        ("dns:a:8000,b:8000", "stands alone"),
        ("b:8000,dns:a:8000", "stands alone"),
        ("dns:10.0.0.1:8000", "write it without dns:"),
        ("dns:agents", "'dns:agents' has no port: write dns:agents:8000"),
        ("dns::8000", "'' is neither"),
    ],
)
def test_names_the_part_that_is_wrong(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_peering(text)


_HOSTS = st.one_of(
    st.ip_addresses(v=4).map(str).filter(lambda host: host != "0.0.0.0"),
    st.ip_addresses(v=6).map(str),
    st.from_regex(r"[a-z]([a-z0-9-]{0,20}[a-z0-9])?(\.[a-z]{1,10}){0,3}\.?", fullmatch=True),
)


@given(st.lists(st.tuples(_HOSTS, st.integers(1, 65535)), min_size=1, max_size=5))
def test_reads_what_it_writes(pairs: list[tuple[str, int]]) -> None:
    addresses = [at(normal_host(host), port) for host, port in pairs]
    try:
        read = parse_peering(",".join(map(str, addresses)))
    except ValueError as exc:
        assert "no agent can be reached" in str(exc)  # noqa: PT017  of a generated address
        return
    assert read == ListedPeers(addresses=tuple(dict.fromkeys(addresses)))
    assert parse_peering(written(read)) == read


@given(st.text(max_size=40))
def test_refuses_whatever_else_by_its_name(text: str) -> None:
    try:
        read = parse_peering(text)
    except ValueError as exc:
        assert str(exc)  # noqa: PT017
    else:
        assert parse_peering(written(read)) == read


def test_a_headless_name_is_written_as_it_is_read() -> None:
    assert written(parse_peering("dns:agents.llm:8000")) == "dns:agents.llm:8000"


@pytest.mark.parametrize(
    ("peers", "listen", "said"),
    [
        ("gpu-b:8000", at("127.0.0.1"), ["this machine alone"]),
        ("127.0.0.2:8000,gpu-b:8000", at("localhost"), ["this machine alone"]),
        ("127.0.0.2:8000,[::1]:8000", at("127.0.0.1"), []),
        ("gpu-b:8000", at("0.0.0.0"), []),
        ("gpu-b:8000", at("0.0.0.0", 9000), []),
        ("dns:agents:8000", at("0.0.0.0"), []),
        ("dns:agents:8000", at("0.0.0.0", 0), []),
        ("dns:agents:8000", at("::", 9000), ["not find itself"]),
        ("dns:agents:8000", at("::1", 9000), ["this machine alone", "not find itself"]),
    ],
)
def test_doubts_an_address_that_does_not_fit(peers: str, listen: Address, said: list[str]) -> None:
    found = list(doubts(parse_peering(peers), listen))
    assert len(found) == len(said)
    assert all(part in doubt.said for part, doubt in zip(said, found, strict=True))
