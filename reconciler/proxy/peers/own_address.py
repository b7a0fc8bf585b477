"""By which addresses this very agent is reached, as far as addresses tell."""

import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass

from reconciler.plan.peering import Address, normal_host
from reconciler.proxy.peers.membership import Answer


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

    def told_apart(self, hosts: Iterable[str], port: int) -> Answer:
        """What the addresses of a name come to, each in one spelling."""
        found = {Address(host=normal_host(host), port=port) for host in hosts}
        usable = frozenset(address for address in found if _is_usable(address.host))
        if not usable:
            return Answer(failure="the name has no address that an agent could be reached at")
        own = frozenset(filter(self.is_own, usable))
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
    bare, _, zone = host.partition("%")
    address = ipaddress.ip_address(bare)
    if address.is_loopback:
        return True
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        target = (bare, 9, 0, _index(zone)) if address.version == 6 else (bare, 9)
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(target)
            source = str(probe.getsockname()[0]).partition("%")[0]
    except OSError:
        return False
    return ipaddress.ip_address(source) == address


def _index(zone: str) -> int:
    if not zone:
        return 0
    return int(zone) if zone.isdigit() else socket.if_nametoindex(zone)
