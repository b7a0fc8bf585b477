"""The ports: the agent's own, and those for backends."""

import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from reconciler.cli.checks.finding import Finding, fail, ok, warn
from reconciler.cli.checks.peers import bound
from reconciler.plan.peering import Address
from reconciler.proxy.peers.own_address import own_address

_FEW = 20


def port_findings(
    listen: tuple[str, int], backend_ports: range, *, holder: int | None, server: str | None
) -> Iterator[Finding]:
    """`holder`: the pid of the agent that runs here, to which the port may well belong. `server`:
    the URL of the agent that is asked."""
    host, port = listen
    at = Address(host=host, port=port)
    if port == 0 or _is_free(host, port):
        yield ok("listen", f"{at} is free")
    elif holder is not None:
        yield ok("listen", f"{at} is taken, and an agent of this data folder runs")
    elif server is not None and _leads_to(server, at):
        yield ok("listen", f"{at} is taken, and --server {server} leads there")
    else:
        step = f"stop who has it (ss -ltnp sport = :{port}), or choose another with --listen"
        yield fail("listen", f"{at} is taken", step)
    yield _backend_ports(backend_ports)


def _backend_ports(ports: range) -> Finding:
    said = f"{ports.start}-{ports.stop - 1}"
    free = sum(_is_free("127.0.0.1", port) for port in ports)
    if free == 0:
        return fail("backend ports", f"{said}: none is free", "choose others with --ports")
    said = f"{said}: {free} of {len(ports)} free"
    first, last = _ephemeral()
    if ports.start <= last and ports.stop > first:
        step = f"choose --ports outside of {first}-{last}"
        return warn("backend ports", f"{said}; outgoing connections take some of them", step)
    if free < min(_FEW, len(ports)):
        return warn("backend ports", said, "choose others with --ports")
    return ok("backend ports", said)


def _leads_to(server: str, listen: Address) -> bool:
    try:
        url = urlsplit(server if "://" in server else f"http://{server}")
        port = url.port or 80
    except ValueError:
        return False
    own = own_address((bound(listen.host), listen.port), ())
    return own.is_at(str(Address(host=bound(url.hostname or ""), port=port)))


def _ephemeral() -> tuple[int, int]:
    path = Path("/proc/sys/net/ipv4/ip_local_port_range")
    try:
        first, last = map(int, path.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return 32768, 60999
    return first, last


def _is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True
