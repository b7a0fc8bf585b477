"""Where the other agents of the cluster are looked for (PURE)."""

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
