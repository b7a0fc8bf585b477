"""How agents and clients reach each other, and who does not."""

import pytest

from reconciler.plan.peering import DnsPeers
from reconciler.plan.peering_text import parse_peering
from tests.deploy.helm import HELM, MISSING
from tests.deploy.rendering import Chart

pytestmark = pytest.mark.skipif(not HELM.exists(), reason=MISSING)


def test_agents_find_each_other_also_while_they_load(chart: Chart) -> None:
    release = chart()
    spec = release.one("Service", "xgen-xgen-model-peers")["spec"]
    assert spec["clusterIP"] == "None"
    assert spec["publishNotReadyAddresses"] is True
    assert [each["port"] for each in spec["ports"]] == [8000]
    told = release.environment()["XGEN_PEERS"]
    assert told == "dns:xgen-xgen-model-peers.models.svc.cluster.local.:8000"
    assert isinstance(parse_peering(told), DnsPeers)


def test_clients_get_agents_that_are_ready(chart: Chart) -> None:
    spec = chart().one("Service", "xgen-xgen-model")["spec"]
    assert "publishNotReadyAddresses" not in spec
    assert (spec["type"], spec["sessionAffinity"]) == ("ClusterIP", "None")
    assert spec["ports"] == [
        {"name": "http", "port": 8000, "targetPort": "http", "protocol": "TCP"}
    ]


def test_the_clients_service_as_a_load_balancer(chart: Chart) -> None:
    release = chart(
        {
            "service": {
                "type": "LoadBalancer",
                "port": 80,
                "nodePort": 30080,
                "annotations": {"a": "b"},
                "loadBalancerClass": "mine",
                "loadBalancerSourceRanges": ["10.0.0.0/8"],
                "externalTrafficPolicy": "Local",
                "ipFamilyPolicy": "PreferDualStack",
                "ipFamilies": ["IPv6", "IPv4"],
            },
            "listenHost": "[::]",
        }
    )
    service = release.one("Service", "xgen-xgen-model")
    assert service["metadata"]["annotations"] == {"a": "b"}
    spec = service["spec"]
    assert (spec["ports"][0]["port"], spec["ports"][0]["nodePort"]) == (80, 30080)
    assert spec["loadBalancerSourceRanges"] == ["10.0.0.0/8"]
    assert (spec["loadBalancerClass"], spec["externalTrafficPolicy"]) == ("mine", "Local")
    peers = release.one("Service", "xgen-xgen-model-peers")["spec"]
    assert peers["type"] == "ClusterIP"
    for each in (spec, peers):
        assert each["ipFamilyPolicy"] == "PreferDualStack"
        assert each["ipFamilies"] == ["IPv6", "IPv4"]
    assert release.environment()["XGEN_LISTEN"] == "[::]:8000"


def test_another_domain(chart: Chart) -> None:
    told = chart({"cluster": {"domain": "k8s.corp"}}).environment()["XGEN_PEERS"]
    assert told == "dns:xgen-xgen-model-peers.models.svc.k8s.corp.:8000"


def test_an_agent_may_be_alone(chart: Chart) -> None:
    assert "XGEN_PEERS" not in chart({"cluster": {"enabled": False}}).environment()


def test_an_ingress_lets_in_inference_alone(chart: Chart) -> None:
    assert not chart().all("Ingress")
    ingress = {
        "enabled": True,
        "className": "nginx",
        "hosts": ["llm.example.com"],
        "tls": [{"secretName": "cert", "hosts": ["llm.example.com"]}],
    }
    release = chart({"ingress": ingress, "service": {"port": 80}})
    spec = release.one("Ingress")["spec"]
    (rule,) = spec["rules"]
    assert [each["path"] for each in rule["http"]["paths"]] == ["/v1", "/api/inference"]
    for each in rule["http"]["paths"]:
        backend = each["backend"]["service"]
        assert backend == {"name": "xgen-xgen-model", "port": {"name": "http"}}
    assert (rule["host"], spec["ingressClassName"]) == ("llm.example.com", "nginx")
    assert spec["tls"] == ingress["tls"]


def test_a_policy_lets_in_the_namespace_and_who_is_named(chart: Chart) -> None:
    assert not chart().all("NetworkPolicy")
    other = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    policy = {"enabled": True, "ingress": {"from": [other]}}
    release = chart({"networkPolicy": policy})
    spec = release.one("NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress"]
    assert spec["ingress"] == [
        {"from": [{"podSelector": {}}, other], "ports": [{"port": "http", "protocol": "TCP"}]}
    ]
    labels = release.workload()["spec"]["template"]["metadata"]["labels"]
    assert spec["podSelector"]["matchLabels"].items() <= labels.items()


def test_a_policy_may_hold_agents_in(chart: Chart) -> None:
    rule = {"to": [{"ipBlock": {"cidr": "10.0.0.7/32"}}], "ports": [{"port": 9000}]}
    policy = {"enabled": True, "egress": {"enabled": True, "rules": [rule]}}
    release = chart({"networkPolicy": policy})
    spec = release.one("NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    dns, peers, own = spec["egress"]
    assert {(each["port"], each["protocol"]) for each in dns["ports"]} == {
        (53, "UDP"),
        (53, "TCP"),
    }
    assert peers["to"][0]["podSelector"] == spec["podSelector"]
    assert dns["to"] == [{"namespaceSelector": {}}]
    assert own == rule


def test_dns_may_be_a_cache_on_each_host(chart: Chart) -> None:
    cache = [{"ipBlock": {"cidr": "169.254.20.10/32"}}]
    policy = {"enabled": True, "egress": {"enabled": True, "dns": cache}}
    rules = chart({"networkPolicy": policy}).one("NetworkPolicy")["spec"]["egress"]
    assert rules[0]["to"] == cache


def test_dns_may_listen_elsewhere(chart: Chart) -> None:
    egress = {"enabled": True, "dnsPorts": [5353, 53]}
    rules = chart({"networkPolicy": {"enabled": True, "egress": egress}}).one("NetworkPolicy")
    found = [(each["port"], each["protocol"]) for each in rules["spec"]["egress"][0]["ports"]]
    assert found == [(5353, "UDP"), (5353, "TCP"), (53, "UDP"), (53, "TCP")]
