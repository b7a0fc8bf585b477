"""What of ours a peer's figures do not count yet."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from reconciler.plan.ids import ModelName
from reconciler.plan.peering import Address
from reconciler.proxy.breaker import Replica
from reconciler.proxy.peers.load import IDLE, ModelLoad
from reconciler.proxy.sent import Sent

THERE = (Address(host="10.0.0.1", port=8080), ModelName("m"))


@dataclass
class Peer:
    """Tells how many requests it has, ours and others'. `sent`: ours, as they are counted here."""

    ours: int = 0
    theirs: int = 0
    told: ModelLoad = IDLE
    sent: Sent = field(default_factory=Sent)

    def __post_init__(self) -> None:
        self.sent.follow(self.newest)

    def newest(self, replica: Replica) -> ModelLoad:
        return self.told

    def tell(self) -> None:
        """Nobody is woken by it."""
        self.told = ModelLoad(in_flight=self.ours + self.theirs)

    def begin(self) -> None:
        self.sent.began(THERE)
        self.ours += 1

    def end(self) -> None:
        self.sent.ended(THERE)
        self.ours -= 1

    @property
    def busy(self) -> int:
        return self.told.in_flight + self.sent.unreported(THERE)


@given(steps=st.lists(st.sampled_from(["begin", "end", "tell", "other comes", "other goes"])))
def test_told_and_unreported_are_what_is_there_but_for_others_since(steps: list[str]) -> None:
    peer, theirs_when_told = Peer(), 0
    peer.tell()
    for step in steps:
        match step:
            case "begin":
                peer.begin()
            case "end" if peer.ours:
                peer.end()
            case "tell":
                peer.tell()
                theirs_when_told = peer.theirs
            case "other comes":
                peer.theirs += 1
            case "other goes" if peer.theirs:
                peer.theirs -= 1
            case _:
                pass
    assert peer.busy == peer.ours + theirs_when_told


def test_what_was_told_before_ours_ended_counts_it_though_nobody_looked() -> None:
    peer = Peer()
    peer.begin()
    peer.tell()
    peer.end()
    assert peer.busy == 0


def test_of_replicas_that_are_gone_only_what_is_under_way_is_kept() -> None:
    peer = Peer()
    peer.begin()
    peer.tell()
    assert peer.sent.unreported(THERE) == 0
    peer.sent.keep_only([])
    peer.told = IDLE
    assert peer.busy == 0  # it says anew what it has, ours with it
    peer.end()
    assert peer.busy == -1
    assert Sent().unreported(THERE) == 0
