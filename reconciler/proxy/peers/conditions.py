"""What this node says of the cluster as a whole, beside what it says of itself (PURE)."""

from collections.abc import Callable, Iterable, Sequence

from reconciler.condition import Condition, ConditionType, Reason
from reconciler.plan.ids import NodeName
from reconciler.proxy.naming import listed
from reconciler.proxy.peers.peer import Peer, Peers
from reconciler.proxy.peers.revisions import by_revision
from reconciler.status import Status

_NAMED = 3
"""Nodes in one message."""


class ClusterConditions:
    """`found`: discovery's; None: the agent is alone. `now`: RFC 3339, UTC. `address`: where this
    node is reached; None: it is not known. `token_problem`: why the token file as it is now is not
    in force; None: it is. Each of the others is there only while it is False, and remembers since
    when."""

    def __init__(
        self,
        *,
        found: Callable[[], Condition] | None,
        peers: Callable[[], Peers],
        status: Callable[[], Status],
        now: Callable[[], str],
        address: Callable[[], str | None],
        token_problem: Callable[[], str | None],
    ) -> None:
        self._found = found
        self._peers = peers
        self._status = status
        self._now = now
        self._address = address
        self._token_problem = token_problem
        self._said: tuple[Condition, ...] = ()
        self._seen: tuple[Peers, Status, str | None] | None = None

    def current(self) -> tuple[Condition, ...]:
        peers, status, token = self._peers(), self._status(), self._token_problem()
        seen = self._seen
        if seen is None or seen[0] is not peers or seen[1] is not status or seen[2] != token:
            self._seen = (peers, status, token)
            self._said = tuple(self._doubts(status, peers.all, token))
        found = () if self._found is None else (self._found(),)
        return (*found, *self._said)

    def _doubts(
        self, status: Status, peers: Sequence[Peer], token: str | None
    ) -> Iterable[Condition]:
        if token is not None:
            said = f"{token}; the token before stays in force until this agent ends"
            yield self._no(ConditionType.CLUSTER_TOKEN_CURRENT, Reason.TOKEN_UNUSABLE, said)
        if (message := clash(status.node, peers, self._address)) is not None:
            yield self._no(ConditionType.NODE_NAMES_UNIQUE, Reason.NAME_CLASH, message)
        if (message := skew(status, peers)) is not None:
            yield self._no(ConditionType.REVISIONS_AGREE, Reason.REVISIONS_DIFFER, message)

    def _no(self, kind: ConditionType, reason: Reason, message: str) -> Condition:
        before = next((each for each in self._said if each.type is kind), None)
        since = before.since if before is not None else self._now()
        return Condition(type=kind, status="False", reason=reason, message=message, since=since)


def clash(own: NodeName, peers: Sequence[Peer], address: Callable[[], str | None]) -> str | None:
    """Which node names several agents give that can be reached, as a sentence. While a pod is
    replaced, the old one and the new one have the same; the old one can not be reached then."""
    given: dict[str, list[str]] = {}
    for peer in peers:
        if peer.reachable and peer.node is not None:
            given.setdefault(peer.node, []).append(str(peer.address))
    if own in given:
        at = address()
        given[own].insert(0, "this node" if at is None else f"this node at {at}")
    twice = sorted((node, who) for node, who in given.items() if len(who) > 1)
    if not twice:
        return None
    said = [f"{node} is {listed(who, _NAMED)}" for node, who in twice]
    return f"{listed(said, _NAMED, between='; ')}: give each agent a --node of its own"


def skew(status: Status, peers: Sequence[Peer]) -> str | None:
    """Which nodes are at which revision, where that differs."""
    found = by_revision(status, peers)
    if len(found) < 2:
        return None
    most_first = sorted(found.items(), key=lambda each: (-len(each[1]), each[0]))
    said = [f"{revision[:12]}: {listed(nodes, _NAMED)}" for revision, nodes in most_first]
    shown = listed(said, _NAMED, between="; ")
    return f"nodes are at {len(found)} revisions of the manifest: {shown}"
