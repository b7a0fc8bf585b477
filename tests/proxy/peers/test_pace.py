"""How often agents are asked, whatever their number."""

import random

from hypothesis import given
from hypothesis import strategies as st

from reconciler.proxy.peers.pace import pace, probe_after


@given(st.integers(1, 10_000))
def test_a_node_asks_a_few_dozen_times_a_second_at_most(peers: int) -> None:
    found = pace(peers)
    quiet = peers / max(found.wait_seconds, found.period_seconds)
    busy = peers / found.period_seconds
    assert quiet <= 30.001
    assert busy <= 30.001


@given(st.integers(1, 10_000))
def test_more_agents_are_not_asked_more_often(peers: int) -> None:
    assert pace(peers + 1).period_seconds >= pace(peers).period_seconds


def test_at_most_two_hundred_connections_wait() -> None:
    assert pace(200).held
    assert not pace(201).held


@given(st.integers(1, 10_000), st.integers(1, 2_000), st.integers())
def test_probes_come_less_and_less_often_but_go_on(failures: int, peers: int, seed: int) -> None:
    seconds = probe_after(failures, peers, random.Random(seed))
    assert 0.375 <= seconds <= 1.25 * max(5.0, peers / 30)
    assert failures < 10 or peers / seconds <= 300
