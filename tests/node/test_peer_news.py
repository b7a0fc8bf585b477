"""Agents that come, fail and leave are told once each."""

from dataclasses import replace

from reconciler.events import EventKind
from reconciler.node.peer_news import Teller
from reconciler.plan.ids import NodeName
from reconciler.plan.peering import Address
from reconciler.proxy.peers.follower import NOT_ASKED
from reconciler.proxy.peers.peer import Peer


def _peer(number: int = 1, *, because: str | None = None) -> Peer:
    return Peer(
        address=Address(host=f"10.0.0.{number}", port=1),
        document=b"",
        node=NodeName(f"node-{number}"),
        reachable=because is None,
        because=because,
    )


def _told(teller: Teller, *peers: Peer) -> list[tuple[EventKind, str]]:
    return [(news.kind, news.reason) for news in teller.look(peers)]


def test_one_that_fails_and_comes_back_is_told_each_time_once() -> None:
    teller, lost = Teller(), _peer(because="refuses connections")
    name = "node-1 (10.0.0.1:1)"
    assert _told(teller, _peer()) == [(EventKind.PEER_FOUND, f"{name} can be reached")]
    assert _told(teller, _peer()) == []
    said = f"{name} cannot be reached: refuses connections"
    assert _told(teller, lost) == [(EventKind.PEER_LOST, said)]
    assert _told(teller, replace(lost, because="has not answered within 4 s")) == []
    assert _told(teller, _peer()) == [(EventKind.PEER_FOUND, f"{name} can be reached")]
    assert _told(teller) == [(EventKind.PEER_GONE, f"{name} left the cluster")]
    assert _told(teller) == []


def test_one_that_never_answers_is_told_once_it_was_asked() -> None:
    teller = Teller()
    assert _told(teller, _peer(because=NOT_ASKED)) == []
    assert [kind for kind, _ in _told(teller, _peer(because="x"))] == [EventKind.PEER_LOST]


def test_many_are_one_event() -> None:
    (found,) = Teller().look(map(_peer, range(1, 101)))
    assert found.reason.endswith("node-3 (10.0.0.3:1) and 97 more can be reached")
    assert len(found.peers) == 100


def test_those_that_fail_for_different_reasons_are_told_apart() -> None:
    refuses, answers = "refuses connections", "it answers 401"
    reasons = (answers, refuses, answers)
    peers = [_peer(number, because=because) for number, because in enumerate(reasons, 1)]
    assert [reason for _, reason in _told(Teller(), *peers)] == [
        f"node-1 (10.0.0.1:1), node-3 (10.0.0.3:1) cannot be reached: {answers}",
        f"node-2 (10.0.0.2:1) cannot be reached: {refuses}",
    ]
