"""Answers that are errors, of requests that are for another node (PURE)."""

from collections.abc import Sequence

from reconciler.proxy.errors import NOT_STARTED, Header, Problem
from reconciler.proxy.peers.peer import Peer

_COME_SOON: Header = (b"retry-after", b"5")
_SHOWN_CHARACTERS = 200
"""Of a name that a client made up."""


def unknown_target(target: str, nodes: tuple[str, ...]) -> Problem:
    message = (
        f"cannot reach node {target[:_SHOWN_CHARACTERS]!r}: known nodes are {', '.join(nodes)}"
    )
    return Problem(status=404, code="node_not_found", message=message)


def no_one_target(targets: Sequence[str]) -> Problem:
    several = " and ".join(repr(each[:_SHOWN_CHARACTERS]) for each in dict.fromkeys(targets[:3]))
    why = f"{several} are named" if len(set(targets)) > 1 else "its name is empty"
    message = (
        f"cannot tell which node is to answer: {why}; give X-Target-Server, or the parameter "
        "server, one node's name or address, or leave it out"
    )
    return Problem(status=400, code="invalid_parameter", message=message)


def misdirected(target: str, *, node: str, by: str) -> Problem:
    """421, not 508: nothing goes round. Another agent has an old address for that node, or its
    client named one node and balancing another."""
    message = (
        f"cannot answer for node {target[:_SHOWN_CHARACTERS]!r}: this is node {node}. Node {by} "
        "has passed the request on to an address that is not that node's any more, and a request "
        "is passed on once; ask again in some seconds"
    )
    return Problem(
        status=421, code="misdirected", message=message, headers=(_COME_SOON, NOT_STARTED)
    )


def not_for_nodes(path: str) -> Problem:
    message = f"cannot pass {path} on to another node: it is no path"
    return Problem(status=400, code="invalid_request", message=message)


def peer_unreachable(peer: Peer, cause: str) -> Problem:
    """`cause`: a clause of which the peer is the subject."""
    return Problem(
        status=503,
        code="peer_unreachable",
        message=f"cannot reach {label(peer)}: it {cause}{_known(peer)}",
        headers=(_COME_SOON, NOT_STARTED),
    )


def peer_lost(peer: Peer, cause: str) -> Problem:
    """No NOT_STARTED: it may have begun. `cause`: as above."""
    return Problem(
        status=502,
        code="peer_lost",
        message=f"cannot get an answer from {label(peer)}: it {cause}{_known(peer)}",
    )


def peer_lost_midway(peer: Peer) -> Problem:
    message = (
        f"cannot finish the answer of {label(peer)}: it ended the connection or fell silent, its "
        f"answer is not valid HTTP, or this agent ends{_known(peer)}"
    )
    return Problem(status=502, code="peer_lost", message=message)


def not_vouched(by: str, *, proven: bool) -> Problem:
    here = "until there are keys, only clients on the host of the node that they ask may change"
    if proven:
        message = f"cannot do that for a client of node {by}: {here} anything"
    else:
        message = (
            f"cannot do that for a client of node {by}: {here} anything, and for another node "
            "both need the same cluster token (--cluster-token-file); or ask this node on its host"
        )
    return Problem(status=403, code="not_on_this_host", message=message)


def label(peer: Peer) -> str:
    return f"node {peer.node} at {peer.address}" if peer.node else f"the agent at {peer.address}"


def _known(peer: Peer) -> str:
    """What the view has said of it for a while."""
    if peer.reachable or peer.because is None:
        return ""
    since = f" since {peer.since}" if peer.since is not None else ""
    return f"; the cluster's view has it as not reachable{since}: {peer.because}"
