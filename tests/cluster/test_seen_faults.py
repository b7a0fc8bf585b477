"""What befalls one node of three, as the others show it: what it is, why, and that it is over."""

import pytest

from tests.cluster import harms
from tests.cluster.agents import Cluster, serving
from tests.cluster.harms import Harm
from tests.e2e.agent import Entry
from tests.e2e.manifests import manifest, model

pytestmark = [pytest.mark.net, pytest.mark.timeout(240)]

_MODELS = manifest(model("everywhere", nodes="all"), model("on-c", nodes="[node-c]"))


@pytest.fixture
def cluster(lasting_cluster: Cluster) -> Cluster:
    """Every node serves `everywhere`, and c `on-c`."""
    lasting_cluster.write(_MODELS)
    lasting_cluster.heal()
    for member in lasting_cluster.members.values():
        member.wait_serving("everywhere", "node-a", "node-b", "node-c")
        member.wait_serving("on-c", "node-c")
    return lasting_cluster


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        (harms.kill, ["refuses connections"]),
        (harms.die, ["refuses connections"]),
        (harms.cut, ["takes no connection", "has not answered"]),
        (harms.freeze, ["has not answered"]),
        (harms.lose_all, ["takes no connection", "has not answered"]),
    ],
    ids=["killed", "machine-dead", "cut", "frozen", "all-lost"],
)
def test_a_node_that_is_gone_stays_listed_with_the_reason_and_comes_back(
    cluster: Cluster, harm: Harm, words: list[str]
) -> None:
    harm(cluster, "c")
    for name in "ab":
        shown = cluster.members[name].wait_reason("node-c", *words)
        assert shown["loaded_models"] == []
        assert shown["unreachable_since"]
        assert {entry["name"] for entry in shown["models"]} == {"everywhere", "on-c"}
        view = cluster.members[name].view()
        assert serving(view, "everywhere") == {"node-a", "node-b"}
        assert view["node-a"]["reachable"]
        assert view["node-b"]["reachable"]
    cluster.heal()
    for member in cluster.members.values():
        member.wait_serving("on-c", "node-c")


def test_who_alone_does_not_hear_a_node_says_so_alone(cluster: Cluster) -> None:
    cluster.network.bar("a", "c")
    cluster.members["a"].wait_reachable("node-c", False)
    assert cluster.members["b"].view()["node-c"]["reachable"]
    assert cluster.members["b"].view()["node-a"]["reachable"]
    cluster.network.mend("a")
    cluster.members["a"].wait_reachable("node-c", True)


def test_a_slow_lossy_link_keeps_its_node_in_the_view(cluster: Cluster) -> None:
    """A change there arrives, too."""
    harms.slow_down(cluster, "c")
    cluster.members["c"].write(manifest(model("everywhere", nodes="all")))
    cluster.members["a"].wait_serving("on-c")
    cluster.members["a"].wait_serving("everywhere", "node-a", "node-b", "node-c")


def test_a_node_without_a_record_leaves_the_view_after_the_lag_of_dns(cluster: Cluster) -> None:
    """Not before: DNS may be behind. The node itself takes nobody's absence for the truth."""
    c = cluster.members["c"]
    cluster.names.tell(*cluster.addresses("a", "b"))
    c.wait_view(lambda _: _peers_found(c.self_view())["status"] == "False", what="c is told")
    assert _peers_found(c.self_view())["reason"] == "SelfMissing"
    a = cluster.members["a"]
    a.wait_view(lambda view: "node-c" not in view, what="a lets node-c go")
    assert set(c.view()) == {"node-a", "node-b", "node-c"}
    cluster.heal()
    a.wait_serving("on-c", "node-c")


@pytest.mark.parametrize("silent", [False, True], ids=["refuses", "silent"])
def test_dns_that_is_dead_takes_nobody_away(cluster: Cluster, silent: bool) -> None:
    if silent:
        cluster.names.fall_silent()
    else:
        cluster.names.stop()
    a = cluster.members["a"]
    view = a.wait_view(
        lambda view: _peers_found(view["node-a"])["status"] == "False", what="a says it"
    )
    assert _peers_found(view["node-a"])["reason"] == "LookupFailed"
    assert "models" in _peers_found(view["node-a"])["message"]
    assert serving(view, "on-c") == {"node-c"}
    cluster.heal()
    a.wait_view(lambda view: _peers_found(view["node-a"])["status"] == "True", what="over")


def _peers_found(server: Entry) -> Entry:
    found: Entry = next(each for each in server["conditions"] if each["type"] == "PeersFound")
    return found
