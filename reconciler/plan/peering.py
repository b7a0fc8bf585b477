"""Where the other agents of the cluster are looked for (PURE)."""

import ipaddress
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Address:
    """Where an agent answers. `host`: an IP address, or a name that leads to some."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DnsPeers:
    """Every address of a name, as a headless Service has them."""

    name: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPeers:
    """These agents; this one may stand among them."""

    addresses: tuple[Address, ...]


Peering = DnsPeers | ListedPeers


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What one agent goes by; None: that is not known, or it has none."""

    node: str | None
    pod_name: str | None
    pod_ip: str | None
    address: Address | None


def named(target: str, agents: Sequence[T], names_of: Callable[[T], Names]) -> list[T]:
    """Those of the agents that a target names: by node, pod name, or IP with or without a port. The
    first of these counts that names any."""
    host, port = host_and_port(target)
    every = [(agent, names_of(agent)) for agent in agents]
    at_port = [
        (agent, names)
        for agent, names in every
        if port is None or (names.address is not None and names.address.port == port)
    ]
    ways = (
        [agent for agent, names in every if names.node == target],
        [agent for agent, names in every if names.pod_name == target],
        [agent for agent, names in at_port if names.pod_ip == host],
        [agent for agent, names in at_port if names.address and names.address.host == host],
    )
    return next(filter(None, ways), [])


def normal_host(host: str) -> str:
    """One spelling for one host: an IPv4 address that is mapped into IPv6 is that address, a zone
    stands only where it means something, names are in lower case."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower()
    if isinstance(address, ipaddress.IPv4Address):
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address) if address.is_link_local else str(address).partition("%")[0]


def host_and_port(text: str) -> tuple[str, int | None]:
    """Of HOST, HOST:PORT, [V6] or [V6]:PORT, the host in one spelling; a port of None: none is
    named. Whatever else it is comes back as the host."""
    if is_ip(text):
        return normal_host(text), None
    host, colon, port = text.rpartition(":")
    if not colon or not re.fullmatch("[0-9]{1,5}", port):
        return normal_host(_bare(text)), None
    return normal_host(_bare(host)), int(port)


def _bare(host: str) -> str:
    inner = host[1:-1]
    return inner if host == f"[{inner}]" and is_ip(inner) else host


def is_ip(host: str) -> bool:
    """Rather than a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
