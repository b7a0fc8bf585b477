"""Which nodes are at which revision of the manifest (PURE)."""

from collections.abc import Sequence

from reconciler.plan.ids import NodeName
from reconciler.proxy.peers.peer import Peer
from reconciler.status import Status


def by_revision(status: Status, peers: Sequence[Peer]) -> dict[str, list[NodeName]]:
    """The nodes that can be reached, by what they have taken whole, sorted; those that have taken
    none are left out."""
    found: dict[str, list[NodeName]] = {}
    nodes = [(status.node, status.revision.applied)]
    nodes += [(peer.node, peer.applied) for peer in peers if peer.reachable and peer.node]
    for node, revision in sorted(nodes, key=lambda each: each[0]):
        if revision is not None:
            found.setdefault(revision, []).append(node)
    return dict(sorted(found.items()))
