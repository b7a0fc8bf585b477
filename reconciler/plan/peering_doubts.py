"""What cannot be right about `--listen` beside `--peers` (PURE)."""

from collections.abc import Iterator
from dataclasses import dataclass

from reconciler.plan.peering import Address, DnsPeers, Peering
from reconciler.plan.peering_text import is_loopback, names_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    said: str
    step: str


def doubts(peering: Peering, listen: Address) -> Iterator[Doubt]:
    """`listen`: as given; port 0: the kernel chooses one."""
    if is_loopback(listen.host) and not all(is_loopback(each.host) for each in names_of(peering)):
        yield Doubt(
            said=f"--listen {listen} is reached from this machine alone, and --peers leads to "
            "others, which cannot reach this agent",
            step=f"listen on 0.0.0.0:{listen.port} or [::]:{listen.port}",
        )
    if isinstance(peering, DnsPeers) and listen.port not in (0, peering.port):
        yield Doubt(
            said=f"--listen has port {listen.port}, and --peers port {peering.port}: this agent "
            "does not find itself behind the name, and then it takes up nobody",
            step="give both the same port",
        )
