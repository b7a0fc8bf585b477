"""What cannot be right about `--listen` beside `--peers` (PURE)."""

from collections.abc import Iterator

from reconciler.plan.peering import Address, DnsPeers, Peering
from reconciler.plan.peering_text import is_loopback, names_of


def doubts(peering: Peering, listen: Address) -> Iterator[str]:
    """Sentences, each with what to do. `listen`: as given; port 0: the kernel chooses one."""
    if is_loopback(listen.host) and not all(is_loopback(each.host) for each in names_of(peering)):
        yield (
            f"--listen {listen} is reached from this machine alone, and --peers leads to others, "
            f"which cannot reach this agent: listen on 0.0.0.0:{listen.port} or [::]:{listen.port}"
        )
    if isinstance(peering, DnsPeers) and listen.port not in (0, peering.port):
        yield (
            f"--listen has port {listen.port}, and --peers port {peering.port}: this agent would "
            "not find itself behind the name, and takes up nobody then; give both the same port"
        )
