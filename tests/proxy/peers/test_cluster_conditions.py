"""What a node says of the cluster as a whole."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.condition import Condition, ConditionType, Reason
from reconciler.plan.ids import NodeName
from reconciler.plan.peering import Address
from reconciler.proxy.peers.conditions import ClusterConditions, clash, skew
from reconciler.proxy.peers.peer import Peer, Peers
from reconciler.proxy.peers.token_file import TokenFile
from reconciler.status import Revision, Status

_OWN = Status(node=NodeName("node-a"), revision=Revision(applied="r1"))
_FOUND = Condition(
    type=ConditionType.PEERS_FOUND, status="True", reason=Reason.FOUND, message="m", since="s"
)


def _peer(
    node: str | None = "node-b", *, host: int = 1, reachable: bool = True, applied: str = "r1"
) -> Peer:
    return Peer(
        address=Address(host=f"10.0.0.{host}", port=1),
        document=b"",
        node=NodeName(node) if node else None,
        reachable=reachable,
        applied=applied,
    )


def test_two_agents_with_one_name_are_told() -> None:
    said = clash(NodeName("node-a"), [_peer("node-a"), _peer(host=2)], lambda: "10.0.0.9:1")
    assert said == (
        "node-a is this node at 10.0.0.9:1, 10.0.0.1:1: give each agent a --node of its own"
    )
    said = clash(NodeName("node-a"), [_peer("node-a")], lambda: None)
    assert said == "node-a is this node, 10.0.0.1:1: give each agent a --node of its own"
    said = clash(NodeName("node-a"), [_peer(), _peer(host=2)], lambda: None)
    assert said == "node-b is 10.0.0.1:1, 10.0.0.2:1: give each agent a --node of its own"


def test_a_pod_that_was_replaced_is_no_clash() -> None:
    for peers in ([_peer(reachable=False), _peer(host=2)], [_peer(None), _peer(None, host=2)]):
        assert clash(NodeName("node-a"), peers, lambda: None) is None


def test_nodes_at_other_revisions_are_named() -> None:
    said = skew(_OWN, [_peer(), _peer("node-c", applied="r2"), _peer("node-d", reachable=False)])
    assert said == "nodes are at 2 revisions of the manifest: r1: node-a, node-b; r2: node-c"


@given(st.lists(st.builds(_peer, applied=st.sampled_from(["r1", "r2"])), max_size=6))
def test_revisions_agree_or_the_skew_is_told(peers: list[Peer]) -> None:
    assert (skew(_OWN, peers) is None) == all(peer.applied == "r1" for peer in peers)


@pytest.mark.parametrize("alone", [False, True])
def test_a_token_file_that_is_no_use_any_more_is_told(tmp_path: Path, alone: bool) -> None:
    """With peers and without, with no change in either the peers or the status."""
    file, now = tmp_path / "token", 0.0
    file.write_text("first")
    token = TokenFile(file, clock=lambda: now)
    peers = Peers()
    said = ClusterConditions(
        found=None if alone else lambda: _FOUND,
        peers=lambda: peers,
        status=lambda: _OWN,
        now=lambda: str(now),
        address=lambda: None,
        token_problem=token.problem,
    )
    found = () if alone else (_FOUND,)
    assert said.current() == found
    file.write_text("")
    now = 2.0
    (*_, told) = said.current()
    assert (told.type, told.status) == (ConditionType.CLUSTER_TOKEN_CURRENT, "False")
    assert (told.reason, told.since) == (Reason.TOKEN_UNUSABLE, "2.0")
    assert f"the cluster token in {file}: it is empty" in told.message
    file.unlink()
    now = 4.0
    (*_, told) = said.current()
    assert ("No such file" in told.message, told.since) == (True, "2.0")
    file.write_text("second")
    now = 6.0
    assert said.current() == found


def test_a_condition_remembers_since_when() -> None:
    peers, moment = Peers(all=(_peer(applied="r2"),)), "1"
    said = ClusterConditions(
        found=lambda: _FOUND,
        peers=lambda: peers,
        status=lambda: _OWN,
        now=lambda: moment,
        address=lambda: None,
        token_problem=lambda: None,
    )
    (_, first) = said.current()
    peers, moment = Peers(all=(_peer(applied="r3"),)), "2"
    (_, later) = said.current()
    assert (first.since, later.since) == ("1", "1")
    assert "r3" in later.message
    peers = Peers(all=(replace(peers.all[0], applied="r1"),))
    assert said.current() == (_FOUND,)
