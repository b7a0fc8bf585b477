"""Values that are wrong are refused before anything is installed, with what to do."""

from typing import Any

import pytest

from tests.deploy.helm import HELM, MISSING
from tests.deploy.rendering import Chart

pytestmark = pytest.mark.skipif(not HELM.exists(), reason=MISSING)

GIT = {"source": "git", "git": {"url": "https://git.example.com/m.git"}}


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"replica": 2}, "replica"),
        ({"gpu": {"vendr": "amd"}}, "vendr"),
        ({"manifest": {"git": {"secretKeys": {"tokn": "t"}}}}, "tokn"),
        ({"storage": {"data": {"hostPath": "/srv"}}}, "hostPath"),
        ({"networkPolicy": {"egress": {"rule": []}}}, "rule"),
        ({"settings": {"cacheBudgets": "1GiB"}}, "cacheBudgets"),
        ({"podSecurityContext": {"runAsUsr": 1}}, "runAsUsr"),
        ({"pools": {"a": {"gpu": {"mod": "plugin"}}}}, "mod"),
        ({"pools": {"a": {"hub": {"location": "s3://m"}}}}, "hub"),
        ({"ingress": {"tls": [{"secret": "x"}]}}, "secret"),
        ({"env": {"A": {"valuesFrom": {}}}}, "valuesFrom"),
    ],
)
def test_a_typo_is_refused_wherever_it_is(values: dict[str, Any], named: str, chart: Chart) -> None:
    said = chart.refusal(values)
    assert "additional properties" in said
    assert f"'{named}'" in said


@pytest.mark.parametrize(
    "values",
    [
        {"workloadKind": "StatefulSet"},
        {"gpu": {"vendor": "intel"}},
        {"gpu": {"mode": "plugin", "count": 0}},
        {"onExit": "leave"},
        {"manifest": {"git": {"url": "git@github.com:org/m.git"}}},
        {"manifest": {"files": {"notes.txt": "x"}}},
        {"pools": {"default": {}}},
        {"pools": {"a-name-that-is-too-long": {}}},
        {"image": {"digest": "latest"}},
        {"listenHost": "::"},
        {"podLabels": {"app.kubernetes.io/instance": "other"}},
        {"hub": {"location": "models"}},
        {"settings": {"logLevel": "loud"}},
        {"networkPolicy": {"egress": {"dnsPorts": []}}},
        {"networkPolicy": {"egress": {"dnsPorts": [0]}}},
        {"updateStrategy": {"maxUnavailable": 0}},
        {"updateStrategy": {"maxUnavailable": "0%"}},
        {"podDisruptionBudget": {"maxUnavailable": "one"}},
    ],
)
def test_a_value_that_cannot_be_is_refused(values: dict[str, Any], chart: Chart) -> None:
    assert "don't meet the specifications" in chart.refusal(values)


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"replicas": None}, "replicas"),
        ({"listenHost": None}, "listenHost"),
        ({"storage": {"data": {"type": None}}}, "type"),
        ({"shutdown": {"stopSeconds": None}}, "stopSeconds"),
        ({"manifest": {"source": None}}, "source"),
        ({"service": {"port": None}}, "port"),
        ({"hub": {"location": None}}, "location"),
        ({"gpu": {"visibleDevices": None}}, "visibleDevices"),
    ],
)
def test_what_a_pod_cannot_be_without_is_taken_away_by_no_null(
    values: dict[str, Any], named: str, chart: Chart
) -> None:
    said = chart.refusal(values)
    assert f"missing property '{named}'" in said or f"'{named}'" in said.split("missing propert")[1]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"updateStrategy": {"type": "OnDelete"}}, "OnDelete is a DaemonSet's"),
        (
            {"workloadKind": "DaemonSet", "updateStrategy": {"type": "Recreate"}},
            "Recreate is a Deployment's",
        ),
        ({"gpu": {"vendor": "none", "mode": "plugin"}}, "but gpu.vendor is none"),
        ({"gpu": {"vendor": "amd"}}, "set securityContext.privileged: true, or gpu.mode: plugin"),
        ({"pools": {"a": {"gpu": {"vendor": "amd"}}}}, "pool a: AMD GPUs"),
        ({"podSecurityContext": {"runAsUser": 0}}, "set podSecurityContext.runAsNonRoot: false"),
        ({"storage": {"data": {"type": "claim"}}}, "name one in storage.data.existingClaim"),
        ({"storage": {"models": {"existingClaim": "m"}}}, "set type: claim"),
        ({"shutdown": {"gracePeriodSeconds": 30}}, "drain, stop and kill take 107"),
        (
            {"shutdown": {"gracePeriodSeconds": 110, "drainSeconds": 300}},
            "drain, stop and kill take 347",
        ),
        ({"minReadySeconds": 9000}, "progressDeadlineSeconds has to be greater"),
        ({"manifest": {"files": {"a.yaml": "x"}, "existingConfigMap": "b"}}, "Give one"),
        ({"manifest": {"files": {"a.yaml": "x" * 2**20 + "x"}}}, "holds 1 MiB: use git"),
        ({"manifest": {"namespace": "a", "existingConfigMap": "b"}}, "only the API"),
        ({"manifest": {"source": "api", "namespace": "a"}}, "name one"),
        ({"manifest": {"source": "git"}}, "give manifest.git.url"),
        ({"manifest": {**GIT, "files": {"a.yaml": "x"}}}, "take those out"),
        ({"manifest": {"git": GIT["git"]}}, "set manifest.source: git"),
        (
            {"manifest": {"source": "git", "git": {"url": "ssh://git@x.org/m.git"}}},
            "ssh-privatekey and known_hosts",
        ),
        (
            {
                "manifest": {
                    "source": "git",
                    "git": {"url": "ssh://git@x.org/m.git", "existingSecret": "s"},
                },
                "podSecurityContext": {"runAsUser": 0, "runAsNonRoot": False},
            },
            "set podSecurityContext.fsGroup: null",
        ),
        (
            {
                "manifest": {
                    "source": "git",
                    "git": {**GIT["git"], "secretKeys": {"allowedSigners": "s"}},  # type: ignore[dict-item]
                }
            },
            "are keys of manifest.git.existingSecret",
        ),
        ({"hub": {"location": "/hub"}}, "say in hub.volume"),
        ({"hub": {"location": "s3://m", "volume": {"emptyDir": {}}}}, "has to be a directory"),
        ({"hub": {"location": "/tmp/", "volume": {"emptyDir": {}}}}, "a folder of the agent's own"),
        ({"hub": {"existingSecret": "h"}}, "set hub.location: s3://BUCKET"),
        ({"service": {"ipFamilies": ["IPv4", "IPv6"]}}, 'set listenHost: "[::]"'),
        ({"service": {"ipFamilies": ["IPv6"]}}, "agents listen on 0.0.0.0"),
        ({"service": {"ipFamilyPolicy": "RequireDualStack"}}, "agents listen on 0.0.0.0"),
        ({"service": {"nodePort": 30000}}, "service.nodePort is for a Service"),
        ({"service": {"externalTrafficPolicy": "Local"}}, "set service.type"),
        ({"service": {"type": "NodePort", "loadBalancerClass": "a/b"}}, "type: LoadBalancer"),
        (
            {"storage": {"data": {"path": "/srv/x"}, "models": {"path": "/srv/x/"}}},
            "storage.data and storage.models are one folder",
        ),
        ({"cluster": {"enabled": False, "existingSecret": "t"}}, "cluster.enabled is false"),
        ({"ingress": {"enabled": True}}, "give ingress.hosts"),
        ({"networkPolicy": {"egress": {"enabled": True}}}, "set networkPolicy.enabled"),
        ({"monitoring": {"serviceMonitor": {"scrapeTimeout": "2m"}}}, "longer than its interval"),
        ({"trustedCA": {"secret": "a", "configMap": "b"}}, "give one"),
        ({"env": {"XGEN_PEERS": "x"}}, "the chart sets this variable itself"),
        ({"settings": {"stopLimit": 3}, "env": {"XGEN_STOP_LIMIT": "4"}}, "env.XGEN_STOP_LIMIT"),
        ({"priorityClass": {"create": True, "name": ""}}, "priorityClass.name is empty"),
    ],
)
def test_a_contradiction_is_refused_with_what_to_do(
    values: dict[str, Any], said: str, chart: Chart
) -> None:
    assert said in chart.refusal(values)


@pytest.mark.parametrize(
    "version", ["1.30.0", "v1.30.4-eks-a1b2", "v1.33.1-gke.100", "1.36.0+k3s1"]
)
def test_the_clouds_versions_are_taken(version: str, chart: Chart) -> None:
    assert chart({}, "--kube-version", version).workloads


def test_an_older_kubernetes_is_refused(chart: Chart) -> None:
    with pytest.raises(AssertionError, match="kubeVersion"):
        chart({}, "--kube-version", "1.29")
