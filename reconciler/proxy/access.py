"""Who may change anything: until there are keys, whoever is on this host (design §9).

Or on the host of another agent, which passed the request on, says so and has our cluster token.
"""

import ipaddress

from starlette.types import Scope

from reconciler.proxy import cluster_errors, errors, guard, headers
from reconciler.proxy.errors import Problem

_FROM_ELSEWHERE = (b"origin", b"forwarded", b"x-forwarded-for")
"""A browser's page, or a proxy on this host: whoever is behind it need not be on this host."""


def why_not_allowed(scope: Scope) -> Problem | None:
    """Whether this client may change anything. Who it is says its connection, no header.

    A header can only make it worse, but for the one that an agent vouches by: what was sent for
    somebody else is not let through, though it comes from another agent on this host.
    """
    passage = guard.passage(scope)
    if passage.by is None:
        client = scope.get("client")
        if client is None or not _is_loopback(client[0]):
            return errors.not_on_this_host(client[0] if client else "unknown")
    elif not passage.vouched:
        return cluster_errors.not_vouched(passage.by, proven=passage.proven)
    for name in _FROM_ELSEWHERE:
        if headers.first(scope["headers"], name) is not None:
            return errors.sent_for_somebody_else(name.decode())
    return None


def asker(scope: Scope) -> str:
    """For the record, where the client does not say who it is."""
    by = guard.passage(scope).by
    return f"a client at {scope['client'][0]}" if by is None else f"a client on node {by}"


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
