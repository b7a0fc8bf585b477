"""Where the other agents of the cluster are looked for (PURE)."""

import ipaddress
from dataclasses import dataclass


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


def is_ip(host: str) -> bool:
    """Rather than a name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
