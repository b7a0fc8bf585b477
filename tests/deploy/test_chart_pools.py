"""Pools: one workload for each kind of host, all of them one cluster."""

from typing import Any

import pytest

from tests.deploy.helm import HELM, MISSING
from tests.deploy.rendering import Chart, Release

pytestmark = pytest.mark.skipif(not HELM.exists(), reason=MISSING)

MIXED: dict[str, Any] = {
    "resources": {"requests": {"cpu": "2"}},
    "env": {"A": "common", "B": "common"},
    "pools": {
        "nvidia": {},
        "amd": {
            "gpu": {"vendor": "amd", "mode": "plugin", "count": 2},
            "image": {"variant": "llama-vulkan"},
            "podSecurityContext": {"supplementalGroups": [44, 110]},
        },
        "cpu": {
            "gpu": {"vendor": "none"},
            "nodeSelector": {"kind": "small"},
            "tolerations": [],
            "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
            "resources": {"limits": {"memory": "8Gi"}},
            "env": {"B": "own", "C": "own"},
            "extraArgs": ["--log-level", "debug"],
            "settings": {"maxParallelLoads": 1},
            "updateStrategy": {"type": "OnDelete"},
            "shutdown": {"drainSeconds": 300},
            "storage": {"models": {"path": "/srv/models"}},
        },
    },
}


@pytest.fixture
def mixed(chart: Chart) -> Release:
    return chart(MIXED)


def test_each_pool_is_a_daemon_set(mixed: Release) -> None:
    names = {each["metadata"]["name"] for each in mixed.all("DaemonSet")}
    assert names == {f"xgen-xgen-model-{pool}" for pool in ("nvidia", "amd", "cpu")}
    assert not mixed.all("Deployment")


def test_one_headless_service_leads_to_all_pools(mixed: Release) -> None:
    peers = mixed.one("Service", "xgen-xgen-model-peers")["spec"]
    for each in mixed.workloads:
        labels = each["spec"]["template"]["metadata"]["labels"]
        assert peers["selector"].items() <= labels.items()
    found = {mixed.environment(pool)["XGEN_PEERS"] for pool in MIXED["pools"]}
    assert found == {"dns:xgen-xgen-model-peers.models.svc.cluster.local.:8000"}


def test_a_workload_selects_its_own_pods_alone(mixed: Release) -> None:
    for own in mixed.workloads:
        selected = own["spec"]["selector"]["matchLabels"].items()
        fits = [
            each["metadata"]["name"]
            for each in mixed.workloads
            if selected <= each["spec"]["template"]["metadata"]["labels"].items()
        ]
        assert fits == [own["metadata"]["name"]]


def test_a_pool_says_what_is_other_in_it(mixed: Release) -> None:
    assert mixed.agent("amd")["image"].endswith("-llama-vulkan")
    assert mixed.agent("amd")["resources"]["limits"] == {"amd.com/gpu": 2}
    assert mixed.pod("amd")["securityContext"]["supplementalGroups"] == [44, 110]
    assert mixed.pod("amd")["securityContext"]["runAsUser"] == 10001
    cpu = mixed.pod("cpu")
    assert cpu["nodeSelector"] == {"kind": "small"}
    assert "tolerations" not in cpu
    assert "nodeAffinity" in cpu["affinity"]
    assert cpu["terminationGracePeriodSeconds"] == 347
    assert mixed.agent("cpu")["args"] == ["run", "--log-level", "debug"]
    assert mixed.workload("cpu")["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert mixed.volume("models", "cpu")["hostPath"]["path"] == "/srv/models"
    assert mixed.volume("data", "cpu")["hostPath"]["path"] == "/var/lib/xgen-model/data"


def test_what_a_pool_does_not_say_it_has_from_the_chart(mixed: Release) -> None:
    nvidia = mixed.pod("nvidia")
    assert nvidia["nodeSelector"] == {"gpu": "nvidia"}
    assert nvidia["runtimeClassName"] == "nvidia"
    assert mixed.agent("nvidia")["resources"]["requests"]["cpu"] == "2"
    assert mixed.environment("nvidia")["A"] == "common"
    assert "securityContext" in nvidia
    assert "supplementalGroups" not in nvidia["securityContext"]


def test_variables_add_up_and_resources_do_not(mixed: Release) -> None:
    own = mixed.environment("cpu")
    assert (own["A"], own["B"], own["C"]) == ("common", "own", "own")
    assert own["XGEN_MAX_PARALLEL_LOADS"] == "1"
    assert mixed.agent("cpu")["resources"] == {"limits": {"memory": "8Gi"}}


@pytest.mark.parametrize("empty", [None, {}])
def test_a_pool_may_say_nothing(empty: dict[str, Any] | None, chart: Chart) -> None:
    assert chart({"pools": {"a": empty}}).workload("a")["kind"] == "DaemonSet"


def test_a_pool_may_be_a_deployment(chart: Chart) -> None:
    release = chart({"pools": {"a": {"workloadKind": "Deployment", "replicas": 3}, "b": {}}})
    assert release.workload("a")["kind"] == "Deployment"
    assert release.workload("a")["spec"]["replicas"] == 3
    assert release.workload("b")["kind"] == "DaemonSet"
    budget = release.one("PodDisruptionBudget")
    assert budget["spec"]["selector"] == release.workload("a")["spec"]["selector"]


def test_zero_and_false_of_a_pool_count(chart: Chart) -> None:
    release = chart(
        {
            "pools": {
                "a": {
                    "workloadKind": "Deployment",
                    "replicas": 0,
                    "podDisruptionBudget": {"enabled": False},
                    "storage": {"permissions": {"fix": False}},
                    "runtimeClassName": "",
                }
            }
        }
    )
    assert release.workload("a")["spec"]["replicas"] == 0
    assert not release.all("PodDisruptionBudget")
    assert "initContainers" not in release.pod("a")
    assert "runtimeClassName" not in release.pod("a")


def test_null_in_a_pool_takes_away(chart: Chart) -> None:
    without = {"securityContext": {"capabilities": None}, "podSecurityContext": {"fsGroup": None}}
    release = chart({"pools": {"a": without, "b": {}}})
    assert "fsGroup" not in release.pod("a")["securityContext"]
    assert "capabilities" not in release.agent("a")["securityContext"]
    assert release.pod("b")["securityContext"]["fsGroup"] == 10001


@pytest.mark.parametrize("image", [{"tag": "1.2-mine"}, {"digest": f"sha256:{'a' * 64}"}])
def test_pools_of_different_variants_do_not_share_one_image(
    image: dict[str, str], chart: Chart
) -> None:
    pools: dict[str, Any] = {"gpu": {}, "plain": {"gpu": {"vendor": "none"}}}
    said = chart.refusal({"image": image, "pools": pools})
    assert "pools gpu (vllm-cuda) and plain (cpu) would run one image" in said
    assert "give each pool an image.tag or image.digest of its own" in said
    # Its own, or of one variant: both are images that somebody chose.
    pools["plain"]["image"] = {"tag": "1.2-cpu", "digest": ""}
    own = chart({"image": image, "pools": pools})
    assert own.agent("plain")["image"] == "xgen-model:1.2-cpu"
    pools["plain"]["image"] = {"variant": "vllm-cuda"}
    same = chart({"image": image, "pools": pools})
    assert same.agent("plain")["image"] == same.agent("gpu")["image"]
