"""A pod is replaced, and its successor on the node has another address, of which DNS tells late."""

import signal

import pytest

from tests.cluster.agents import Cluster, Member
from tests.cluster.load import Entrances, chats_by_sdk
from tests.e2e.agent import Entry
from tests.e2e.manifests import manifest, model
from tests.waiting import wait_until

pytestmark = [pytest.mark.net, pytest.mark.timeout(300)]

_SLOW = '{STAND_IN: "--probe-well --first-byte-after 0.1 --chunk-interval 0.1"}'


def test_the_new_pod_takes_the_place_of_the_old_one_and_no_request_fails(
    lasting_cluster: Cluster,
) -> None:
    cluster, network = lasting_cluster, lasting_cluster.network
    cluster.write(manifest(model("two", nodes="[node-b, node-c]", env=_SLOW)))
    cluster.heal()
    a, c = cluster.members["a"], cluster.members["c"]
    a.wait_serving("two", "node-b", "node-c")
    before = c.host.ipv4
    with chats_by_sdk(Entrances(urls=[a.url]), "two", 8, max_retries=0) as load:
        load.wait_more(20)
        assert c.stop(signal.SIGTERM) == 0
        network.move("c", 103)
        c.environment["POD_IP"] = c.host.ipv4
        c.start()
        c.wait_up()
        load.wait_more(20)
        cluster.names.tell(*cluster.addresses())
        after = f"{c.host.ipv4}:8000"
        wait_until(lambda: after in _serving(a), what="the new pod is found", seconds=120)
        load.wait_more(40)
        for target in ("node-c", c.pod_name, c.host.ipv4):
            own = a.client.get(f"{a.url}/api/cluster/_self", headers={"X-Target-Server": target})
            assert own.status_code == 200, (target, own.text, _serving(a), _gone(a))
            assert own.json()["pod_ip"] == c.host.ipv4, target
        assert _gone(a) <= {f"{before}:8000"}
        wait_until(lambda: not _gone(a), what="the old pod is forgotten", seconds=120)
    assert load.failed == []
    assert sorted(a.view()) == ["node-a", "node-b", "node-c"]


def _serving(member: Member) -> set[str]:
    """Where it shows agents that it reaches, and that have a model loaded."""
    return {each["address"] for each in _servers(member) if each["loaded_models"]}


def _gone(member: Member) -> set[str]:
    """Where it shows agents that it does not reach."""
    return {each["address"] for each in _servers(member) if not each["reachable"]}


def _servers(member: Member) -> list[Entry]:
    """All that it shows; two have one name while a pod is replaced."""
    found: list[Entry] = member.client.get(f"{member.url}/api/cluster/servers").json()["servers"]
    return found
