"""By which addresses this very agent is reached, as far as addresses tell."""

import ipaddress
import socket
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from reconciler.plan.peering import Address, host_and_port, is_ip, normal_host
from reconciler.proxy.peers.membership import Answer

_ELSEWHERE = ("192.0.2.1", "2001:db8::1")
"""Of documentation (RFC 5737, 3849): a route there is the one to everywhere."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnAddress:
    """`listen`: as it is bound, with the port that it got. `pod_ips`: of the pod, also where they
    are none of this machine's interfaces."""

    listen: Address
    pod_ips: frozenset[str] = frozenset()

    def is_own(self, address: Address) -> bool:
        """Other ports of this host are other agents; so are other addresses than the one that is
        listened on."""
        if address.port != self.listen.port:
            return False
        if address.host in self.pod_ips or address.host == self.listen.host:
            return True
        listens_on_all = ipaddress.ip_address(self.listen.host).is_unspecified
        return listens_on_all and is_local(address.host)

    def is_at(self, place: str) -> bool:
        """Whether this agent is reached there; without a port, at its own."""
        host, port = host_and_port(place)
        at = self.listen.port if port is None else port
        return is_ip(host) and self.is_own(Address(host=host, port=at))

    @property
    def shown(self) -> str | None:
        """Where others reach it, as far as it can tell; None: it cannot."""
        host: str | None = self.listen.host
        if self.pod_ips:
            host = min(self.pod_ips)
        elif ipaddress.ip_address(self.listen.host).is_unspecified:
            host = next(filter(None, map(_source, _ELSEWHERE)), None)
        return str(Address(host=host, port=self.listen.port)) if host is not None else None

    def told_apart(
        self, hosts: Iterable[str], port: int, *, others: Collection[Address] = ()
    ) -> Answer:
        """What the addresses of a name come to, each in one spelling. `others`: those that are
        known not to be ours, which are not looked at again."""
        found = {Address(host=normal_host(host), port=port) for host in hosts}
        usable = frozenset(address for address in found if _is_usable(address.host))
        if not usable:
            return Answer(failure="the name has no address that an agent could be reached at")
        own = frozenset(each for each in usable if each not in others and self.is_own(each))
        return Answer(others=usable - own, own=own)


def own_address(listen: tuple[str, int], pod_ips: Iterable[str | None]) -> OwnAddress:
    """`listen`: what `getsockname` says of the listener; `pod_ips`: None and "" are none."""
    host, port = listen
    return OwnAddress(
        listen=Address(host=normal_host(host), port=port),
        pod_ips=frozenset(normal_host(each.strip()) for each in pod_ips if each and each.strip()),
    )


def _is_usable(host: str) -> bool:
    address = ipaddress.ip_address(host)
    return not (address.is_unspecified or address.is_multicast)


def is_local(host: str) -> bool:
    """Whether an IP address is one of this machine's: then the kernel would send from it.

    Nothing is sent. `bind` would not tell where `ip_nonlocal_bind` is set.
    """
    bare = host.partition("%")[0]
    return ipaddress.ip_address(bare).is_loopback or _source(host) == bare


def _source(host: str) -> str | None:
    """The address that the kernel would send from to an IP address; None: it cannot."""
    bare, _, zone = host.partition("%")
    of_v6 = ":" in bare
    try:
        target = (bare, 9, 0, _index(zone)) if of_v6 else (bare, 9)
        with socket.socket(
            socket.AF_INET6 if of_v6 else socket.AF_INET, socket.SOCK_DGRAM
        ) as probe:
            probe.connect(target)
            return normal_host(str(probe.getsockname()[0]).partition("%")[0])
    except OSError:
        return None


def _index(zone: str) -> int:
    if not zone:
        return 0
    return int(zone) if zone.isdigit() else socket.if_nametoindex(zone)
