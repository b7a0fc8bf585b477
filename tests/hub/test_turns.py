"""Turns among writers of a store without conditions."""

import pytest

from reconciler.hub.turns import turn


class Store:
    """`stuck`: what it says to have removed, and keeps."""

    def __init__(self, *there: str, stuck: frozenset[str] = frozenset()) -> None:
        self.there = set(there)
        self.stuck = stuck

    def write(self, ticket: str) -> None:
        self.there.add(ticket)

    def remove(self, ticket: str) -> None:
        if ticket not in self.stuck:
            self.there.discard(ticket)

    def listed(self) -> frozenset[str]:
        return frozenset(self.there)


@pytest.mark.parametrize("ticket", ["0" * 16, "f" * 16], ids=["before ours", "behind ours"])
def test_a_dead_writers_ticket_is_removed(ticket: str) -> None:
    store = Store(ticket)

    with turn(store, dead_seconds=0.0):
        assert len(store.there) == 1
        assert ticket not in store.there

    assert not store.there


@pytest.mark.parametrize("ticket", ["0" * 16, "f" * 16], ids=["before ours", "behind ours"])
def test_one_that_the_store_does_not_let_go_of_holds_up_nobody(ticket: str) -> None:
    store = Store(ticket, stuck=frozenset({ticket}))

    for _ in range(2):
        with turn(store, dead_seconds=0.0):
            assert len(store.there) == 2

    assert store.there == {ticket}
