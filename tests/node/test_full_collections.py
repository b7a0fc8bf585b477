"""Full collections of the agent's own garbage: real ones, made when nobody waits."""

import gc
import weakref
from collections import Counter
from collections.abc import Iterator

import pytest

from reconciler.cli.garbage import collect_what_comes
from reconciler.metrics import FullCollection
from reconciler.node.full_collections import DUE, LOOK_SECONDS, QUIET_SECONDS, FullCollections

GROWTH_BYTES = 32 * 1024 * 1024


class Circle:
    """Refers to itself: only a collection frees it."""

    def __init__(self, weight: bytes = b"") -> None:
        self.itself, self.weight = self, weight


class Node:
    """What an agent tells of itself, and its clock."""

    def __init__(self) -> None:
        self.now, self.busy, self.news = 1_000.0, False, "one revision"
        self.made: Counter[FullCollection] = Counter()
        self.collections = FullCollections(
            busy=lambda: self.busy,
            news=lambda: self.news,
            clock=lambda: self.now,
            count=self._count,
            growth_bytes=GROWTH_BYTES,
        )

    def _count(self, cause: FullCollection) -> None:
        self.made[cause] += 1

    def rest(self, seconds: float = QUIET_SECONDS) -> None:
        """Looks come as often as in an agent."""
        for _ in range(int(seconds / LOOK_SECONDS)):
            self.now += LOOK_SECONDS
            self.collections.look()


@pytest.fixture
def node() -> Iterator[Node]:
    thresholds = gc.get_threshold()
    collect_what_comes()
    yield Node()
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def garbage() -> weakref.ref[Circle]:
    """That no other than a full collection finds, when one is due."""
    circle = Circle()
    old = weakref.ref(circle)
    for _ in range(DUE):
        gc.collect(1)
    return old


def test_is_made_when_it_is_due_and_nobody_waits(node: Node) -> None:
    old = garbage()

    node.rest()

    assert old() is None
    assert node.made == {FullCollection.REST: 1}


def test_is_not_made_while_a_request_is_under_way(node: Node) -> None:
    old = garbage()
    node.busy = True

    node.rest(3600)
    assert (old() is not None, node.made) == (True, {})

    node.busy = False
    node.rest(LOOK_SECONDS)
    assert old() is None


def test_is_not_made_soon_after_a_change(node: Node) -> None:
    old = garbage()
    node.news = "another revision"

    node.rest(QUIET_SECONDS)
    assert (old() is not None, node.made) == (True, {})

    node.rest(LOOK_SECONDS)
    assert old() is None


def test_is_not_made_before_it_is_due(node: Node) -> None:
    gc.collect(1)

    node.rest(3600)

    assert node.made == {}


def test_one_is_not_followed_by_the_next(node: Node) -> None:
    garbage()

    node.rest(3600)

    assert node.made == {FullCollection.REST: 1}


def test_is_made_whoever_waits_when_memory_has_grown(node: Node) -> None:
    node.busy = True
    heavy = weakref.ref(Circle(b"x" * (GROWTH_BYTES + 4 * 1024 * 1024)))
    gc.collect(1)
    weight = b"x" * (GROWTH_BYTES + 4 * 1024 * 1024)  # else the collection above has freed enough

    node.rest(LOOK_SECONDS)
    assert (heavy(), node.made) == (None, {FullCollection.MEMORY: 1})

    node.rest(3600)
    assert node.made == {FullCollection.MEMORY: 1}, f"{len(weight)} bytes are still there"


def test_python_makes_none_until_long_after_one_was_due(node: Node) -> None:
    """Twenty times: an agent that never rests."""
    made = gc.get_stats()[2]["collections"]
    for _ in range(10 * DUE):
        gc.collect(1)
    kept: list[list[int]] = [[] for _ in range(100_000)]  # some collections by Python itself

    assert gc.get_stats()[2]["collections"] == made
    for _ in range(11 * DUE):
        gc.collect(1)
    kept += [[] for _ in range(100_000)]

    node.collections.look()
    assert gc.get_stats()[2]["collections"] > made
    assert node.made[FullCollection.PYTHON] == 1
