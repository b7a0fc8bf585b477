"""Agents that have an address of each family in DNS, and listen on both."""

import pytest

from tests.cluster.agents import PORT, Cluster
from tests.e2e.agent import Entry
from tests.e2e.manifests import manifest, model

pytestmark = [pytest.mark.net, pytest.mark.timeout(240)]


@pytest.fixture
def cluster(lasting_cluster: Cluster) -> Cluster:
    """Off Kubernetes: no POD_IP tells them which addresses are theirs."""
    lasting_cluster.write(manifest(model("on-c", nodes="[node-c]")))
    for member in lasting_cluster.members.values():
        member.listen = f"[::]:{PORT}"
        del member.environment["POD_IP"]
    lasting_cluster.heal()
    return lasting_cluster


def _tell_both(cluster: Cluster) -> None:
    hosts = [member.host for member in cluster.members.values()]
    cluster.names.tell(*(each for host in hosts for each in (host.ipv4, host.ipv6)))


def _is_whole(view: dict[str, Entry]) -> bool:
    return sorted(view) == ["node-a", "node-b", "node-c"] and all(
        server["reachable"] for server in view.values()
    )


def _each_once(view: dict[str, Entry]) -> bool:
    found = next(each for each in view["node-a"]["conditions"] if each["type"] == "PeersFound")
    return _is_whole(view) and found["message"] == "4 other addresses of at most 2 agents known"


def test_each_agent_counts_once_and_the_family_that_breaks_is_replaced(cluster: Cluster) -> None:
    a, c = cluster.members["a"], cluster.members["c"]
    _tell_both(cluster)
    a.wait_view(_each_once, what="each counts once, with two addresses")
    servers = a.client.get(f"{a.url}/api/cluster/servers").json()
    assert servers["count"] == 3
    used = a.view()["node-c"]["address"]
    family = 6 if used.startswith("[") else 4
    other = f"{c.host.ipv4}:{PORT}" if family == 6 else f"[{c.host.ipv6}]:{PORT}"
    cluster.network.bar("c", "a", families=[family])
    a.wait_view(
        lambda view: _is_whole(view) and view["node-c"]["address"] == other,
        what="c is reached by its other address",
        seconds=90,
    )
    a.wait_serving("on-c", "node-c")
