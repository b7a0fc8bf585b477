"""Which proxy the way to a store leads through (kserve#825)."""

import ipaddress
from dataclasses import dataclass, field

from reconciler.hub.endpoint import Endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Proxies:
    """The values of HTTP_PROXY, HTTPS_PROXY and NO_PROXY; "" is none. They may hold passwords."""

    http: str = field(default="", repr=False)
    https: str = field(default="", repr=False)
    no_proxy: str = ""

    def url_for(self, endpoint: Endpoint) -> str | None:
        """The proxy's URL, or None to connect directly."""
        proxy = (self.https if endpoint.secure else self.http).strip()
        entries = [entry.strip() for entry in self.no_proxy.split(",")]
        if not proxy or any(_matches(entry, endpoint) for entry in entries if entry):
            return None
        return proxy if "://" in proxy else f"http://{proxy}"


def _matches(entry: str, endpoint: Endpoint) -> bool:
    """One NO_PROXY entry: `*`, a domain and all below it, an address, a CIDR; maybe with a port."""
    if entry == "*":
        return True
    host = endpoint.host.lower()
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(entry, strict=False)
    except ValueError:
        pass  # a name on either side
    name, _, port = entry.rpartition(":")
    if name and port.isdigit():
        if int(port) != endpoint.port:
            return False
        entry = name
    domain = entry.lower().strip("[]").removeprefix("*").lstrip(".")
    return bool(domain) and (host == domain or host.endswith(f".{domain}"))
