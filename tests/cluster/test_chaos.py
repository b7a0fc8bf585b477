"""One harm after the other, at random, to two nodes that serve a model; a third is asked for it.

XGEN_CLUSTER_CHAOS_SEED and XGEN_CLUSTER_CHAOS_STEPS choose another run.
"""

import os
import random
from collections.abc import Iterator

import pytest

from tests.cluster import harms
from tests.cluster.agents import Cluster
from tests.cluster.load import Load, chats
from tests.e2e.manifests import manifest, model

_SEED = int(os.environ.get("XGEN_CLUSTER_CHAOS_SEED") or "1")
_STEPS = int(os.environ.get("XGEN_CLUSTER_CHAOS_STEPS") or "6")
_ENGINE = '{STAND_IN: "--probe-well --first-byte-after 0.05 --chunk-interval 0.02"}'

pytestmark = [pytest.mark.net, pytest.mark.timeout(120 + 60 * _STEPS)]


@pytest.fixture
def cluster(lasting_cluster: Cluster) -> Cluster:
    lasting_cluster.write(manifest(model("two", nodes="[node-b, node-c]", env=_ENGINE)))
    lasting_cluster.heal()
    lasting_cluster.members["a"].wait_serving("two", "node-b", "node-c")
    return lasting_cluster


@pytest.fixture
def load(cluster: Cluster) -> Iterator[Load]:
    with chats(cluster.members["a"].url, "two", 6) as load:
        yield load


def test_what_has_not_begun_never_fails_and_all_comes_back(cluster: Cluster, load: Load) -> None:
    a, chance = cluster.members["a"], random.Random(_SEED)
    told = [f"seed {_SEED}"]
    for _ in range(_STEPS):
        name, harm = chance.choice("bc"), chance.choice(harms.EVERY)
        told.append(f"{harm.__name__} {name}")
        harm(cluster, name)
        load.wait_more(chance.choice((1, 50, 500)))
        cluster.heal()
        a.wait_serving("two", "node-b", "node-c", seconds=180)
    load.finish()
    assert [each for each in load.failed if not each.began] == [], told
