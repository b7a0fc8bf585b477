"""Three replicas behind a fourth node, one of them four times slower: who gets how many requests.

How much better that is than turns is asserted in simulated time (tests/bench/balance.py): here it
is measured, over a real network, and printed.
"""

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx
import pytest

from reconciler.plan.desired import Affinity
from reconciler.proxy.balance import admitted, rank
from reconciler.proxy.replicas import has_slot
from tests.cluster.agents import Cluster, cluster_on
from tests.cluster.load import Load, Outcome, ask, under_load
from tests.cluster.names import serve_names
from tests.cluster.network import network, skip_without_namespaces
from tests.e2e.manifests import manifest, model
from tests.proxy.ranking import names, of_explanation

pytestmark = [pytest.mark.net, pytest.mark.timeout(300)]

_CLIENTS = 5
_REQUESTS = 150
_SLOTS = 2
_REPLICAS = ("node-b", "node-c", "node-d")


def _manifest(first_byte_seconds: float) -> str:
    engine = f'{{STAND_IN: "--first-byte-after {first_byte_seconds}"}}'
    replicas = f"[{', '.join(_REPLICAS)}]"
    return manifest(model("m", nodes=replicas, max_in_flight=str(_SLOTS), env=engine))


@pytest.fixture
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """d is slow. a has come last, so that nobody is new to it: it asks all from the beginning."""
    skip_without_namespaces()
    folder = tmp_path_factory.mktemp("skewed")
    with (
        network(folder, "abcd") as net,
        serve_names(folder, net.bridge) as served,
        cluster_on(net, served, folder) as cluster,
    ):
        cluster.write(_manifest(0.1))
        cluster.members["d"].write(_manifest(0.4))
        cluster.heal()
        a = cluster.members["a"]
        a.wait_serving("m", *_REPLICAS)
        a.stop()
        cluster.heal()
        a.wait_serving("m", *_REPLICAS)
        yield cluster


def test_a_slow_replica_gets_fewer_requests_and_each_choice_can_be_checked(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    url = cluster.members["a"].url
    turns = itertools.cycle(_REPLICAS)
    with httpx.Client(trust_env=False) as client:
        chat = partial(ask, client, url, "m", stream=True)
        balanced = _measured(lambda: chat({"X-Xgen-Debug": "route"}))
        in_turn = _measured(lambda: chat({"X-Target-Server": next(turns)}))
    assert balanced.failed == []
    assert in_turn.failed == []
    with capsys.disabled():
        print(f"\n  {_told('balanced', balanced)}\n  {_told('in turn', in_turn)}")
    shares = _shares(balanced)
    assert 2 * shares["node-d"] < min(shares["node-b"], shares["node-c"])
    for outcome in balanced.outcomes:
        assert outcome.route is not None
        told = json.loads(outcome.route)
        assert told["node"] == str(outcome.served_by).removesuffix("/m")
        _judge(told)


def _measured(one: Callable[[], Outcome]) -> Load:
    with under_load([one] * _CLIENTS) as load:
        load.wait_more(_REQUESTS)
    return load


def _judge(told: dict[str, Any]) -> None:
    """With the figures that it names, and nothing else, the choice comes out again."""
    ranked = rank(
        list(reversed(of_explanation(told))),
        affinity=Affinity(told["affinity"]),
        key=None if told["key"] is None else bytes.fromhex(told["key"]),
        tie=told["tie"],
    )
    assert names(ranked) == [each["node"] for each in told["candidates"]]
    assert [list(each.score) for each in ranked] == [each["score"] for each in told["candidates"]]
    usable = admitted(ranked)
    found = next((each for each in usable if has_slot(each.candidate)), usable[0])
    assert (found.candidate.node, found.why) == (told["node"], told["why"])
    assert has_slot(found.candidate) is not told["waits"]


def _shares(load: Load) -> Counter[str]:
    return Counter(str(each.served_by).removesuffix("/m") for each in load.outcomes)


def _told(way: str, load: Load) -> str:
    seconds = sorted(each.seconds for each in load.outcomes)
    mean, p95 = sum(seconds) / len(seconds), seconds[int(len(seconds) * 0.95)]
    shares = ", ".join(f"{node} {count}" for node, count in sorted(_shares(load).items()))
    return f"{way:<9} mean {mean:.3f} s, p95 {p95:.3f} s; {shares}"
