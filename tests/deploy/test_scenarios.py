"""What each values file of the folder scenarios is for, in the objects that come of it.

That all of them pass helm and Kubernetes' schemas shows test_chart.py.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.helm import CHART, HELM, MISSING, render

pytestmark = pytest.mark.skipif(not HELM.exists(), reason=MISSING)

SCENARIOS = CHART / "scenarios"
WORKLOADS = ("DaemonSet", "Deployment")


class Release:
    """The objects of a scenario, by kind."""

    def __init__(self, scenario: str, home: Path) -> None:
        self.objects = render("-f", str(SCENARIOS / f"{scenario}.yaml"), home=home)

    def every(self, kind: str) -> list[Any]:
        return [each for each in self.objects if each["kind"] == kind]

    def only(self, kind: str) -> Any:
        (found,) = self.every(kind)
        return found

    @property
    def pods(self) -> dict[str, Any]:
        """Pod specs by pool."""
        return {
            each["metadata"]["labels"]["xgen.io/pool"]: each["spec"]["template"]["spec"]
            for each in self.objects
            if each["kind"] in WORKLOADS
        }

    @property
    def pod(self) -> Any:
        (found,) = self.pods.values()
        return found


def agent(pod: Any) -> Any:
    (found,) = [each for each in pod["containers"] if each["name"] == "agent"]
    return found


def env(pod: Any) -> dict[str, Any]:
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in agent(pod)["env"]}


def volume(pod: Any, path: str) -> Any:
    """What is mounted there."""
    (mount,) = [each for each in agent(pod)["volumeMounts"] if each["mountPath"] == path]
    (found,) = [each for each in pod["volumes"] if each["name"] == mount["name"]]
    return found


def test_every_scenario_says_at_its_head_what_it_is_for_and_how_it_is_installed() -> None:
    every = sorted(SCENARIOS.glob("*.yaml"))
    assert len(every) == 7
    for path in every:
        head = path.read_text(encoding="utf-8").partition("\n\n")[0]
        assert all(line.startswith("#") for line in head.splitlines()), path
        text = path.read_text(encoding="utf-8")
        assert f"-f {path.name}" in text
        assert "helm upgrade --install xgen" in text


@pytest.mark.parametrize("scenario", sorted(path.stem for path in SCENARIOS.glob("*.yaml")))
def test_the_manifest_that_it_brings_is_a_valid_one(scenario: str, tmp_path: Path) -> None:
    release = Release(scenario, tmp_path)
    texts = [
        (name, text)
        for each in release.every("ConfigMap")
        for name, text in (each.get("data") or {}).items()
        if name.endswith(".yaml")
    ]
    for name, text in texts:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "reconciler", "validate", str(path)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
    brings = {"k3s-nvidia", "air-gapped", "device-plugin"}
    assert bool(texts) == (scenario in brings)


@pytest.mark.parametrize("scenario", sorted(path.stem for path in SCENARIOS.glob("*.yaml")))
def test_its_priority_class_is_there_or_is_not_asked_for(scenario: str, tmp_path: Path) -> None:
    release = Release(scenario, tmp_path)
    made = {each["metadata"]["name"] for each in release.every("PriorityClass")}
    asked = {pod.get("priorityClassName") for pod in release.pods.values()} - {None}
    assert asked == made


def test_k3s_nvidia_gives_all_gpus_of_each_labelled_node(tmp_path: Path) -> None:
    release = Release("k3s-nvidia", tmp_path)
    pod = release.pod
    assert release.only("DaemonSet")
    assert pod["runtimeClassName"] == "nvidia"
    assert pod["nodeSelector"] == {"gpu": "nvidia"}
    assert env(pod)["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert env(pod)["XGEN_CACHE_BUDGET"] == "80%"
    assert "nvidia.com/gpu" not in str(agent(pod)["resources"])
    assert any(each["key"] == "xgen.io/gpu" for each in pod["tolerations"])
    types = {each["spec"]["type"] for each in release.every("Service")}
    assert types == {"ClusterIP", "LoadBalancer"}


def test_mixed_vendors_is_one_cluster_of_three_pools(tmp_path: Path) -> None:
    release = Release("mixed-vendors", tmp_path)
    pods = release.pods
    assert set(pods) == {"nvidia", "amd", "cpu"}
    assert [pods[name]["nodeSelector"]["gpu"] for name in pods] == [
        {"nvidia": "nvidia", "amd": "amd", "cpu": "none"}[name] for name in pods
    ]
    assert len({env(pod)["XGEN_PEERS"] for pod in pods.values()}) == 1
    images = {name: agent(pod)["image"].rpartition("-")[2] for name, pod in pods.items()}
    assert images == {"nvidia": "cuda", "amd": "rocm", "cpu": "cpu"}
    for pod in pods.values():
        assert env(pod)["XGEN_CLUSTER_TOKEN_FILE"] == "/etc/xgen-model/cluster/token"
        assert volume(pod, "/etc/xgen-model/manifest")["configMap"]["name"] == "production"
    for each in release.every("DaemonSet"):
        assert each["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert release.only("ServiceMonitor")
    assert release.only("PrometheusRule")


def test_mixed_vendors_gives_amd_its_devices_and_privileges_to_no_other_pool(
    tmp_path: Path,
) -> None:
    pods = Release("mixed-vendors", tmp_path).pods
    for path in ("/dev/kfd", "/dev/dri"):
        assert volume(pods["amd"], path)["hostPath"]["path"] == path
    assert pods["amd"]["securityContext"]["supplementalGroups"]
    privileged = {
        name for name, pod in pods.items() if agent(pod)["securityContext"].get("privileged")
    }
    assert privileged == {"amd"}
    assert {name for name, pod in pods.items() if "runtimeClassName" in pod} == {"nvidia"}


def test_cpu_laptop_is_alone_and_asks_for_no_gpu(tmp_path: Path) -> None:
    release = Release("cpu-laptop", tmp_path)
    pod = release.pod
    assert release.only("Deployment")["spec"]["replicas"] == 1
    assert "XGEN_PEERS" not in env(pod)
    assert not {"runtimeClassName", "nodeSelector", "priorityClassName"} & pod.keys()
    assert "NVIDIA_VISIBLE_DEVICES" not in env(pod)
    assert agent(pod)["image"].endswith("-cpu")
    assert volume(pod, "/hub")["hostPath"]["path"] == "/srv/hub"
    assert not release.every("PodDisruptionBudget")


def test_air_gapped_takes_all_from_within_and_lets_nothing_out(tmp_path: Path) -> None:
    release = Release("air-gapped", tmp_path)
    pod = release.pod
    every = [*pod["containers"], *pod.get("initContainers", [])]
    images = {each["image"] for each in every}
    assert all(each.startswith("registry.internal.example:5000/mirror/") for each in images)
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert env(pod)["XGEN_HUB"] == "/hub"
    assert volume(pod, "/hub")["nfs"]["readOnly"] is True
    assert "MINIO_ENDPOINT" not in env(pod)
    policy = release.only("NetworkPolicy")["spec"]
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    ports = {port["port"] for rule in policy["egress"] for port in rule["ports"]}
    assert ports == {53, 8000}
    assert all(rule["to"] for rule in policy["egress"])


def test_git_source_reads_one_repository_with_credentials_by_file(tmp_path: Path) -> None:
    release = Release("git-source", tmp_path)
    told = env(release.pod)
    assert told["XGEN_MANIFEST"] == (
        "git+https://git.example.com/org/models.git?ref=main&path=manifests%2Fproduction"
    )
    files = {
        "XGEN_GIT_TOKEN_FILE": "/etc/xgen-model/git/token",
        "XGEN_GIT_ALLOWED_SIGNERS": "/etc/xgen-model/git/allowed_signers",
        "XGEN_GIT_WEBHOOK_SECRET_FILE": "/etc/xgen-model/git/webhook",
    }
    assert files.items() <= told.items()
    secret = volume(release.pod, "/etc/xgen-model/git")["secret"]
    assert secret["secretName"] == "models-git"
    assert {each["key"] for each in secret["items"]} == {"token", "allowed_signers", "webhook"}
    assert told["SSL_CERT_FILE"].startswith("/etc/xgen-model/ca/")
    assert not release.every("ConfigMap")
    (rule,) = release.only("Ingress")["spec"]["rules"]
    paths = {each["path"] for each in rule["http"]["paths"]}
    assert paths == {"/v1", "/api/management/pushed"}


def test_api_source_may_read_that_one_config_map_and_has_a_token(tmp_path: Path) -> None:
    release = Release("api-source", tmp_path)
    assert env(release.pod)["XGEN_MANIFEST"] == "configmap://models/production"
    assert release.pod["automountServiceAccountToken"] is True
    reads, tells = release.only("Role")["rules"]
    assert reads["resourceNames"] == ["production"]
    assert set(reads["verbs"]) == {"get", "list", "watch"}
    assert (tells["resources"], set(tells["verbs"])) == (["events"], {"create", "patch"})
    egress = release.only("NetworkPolicy")["spec"]["egress"]
    ports = {port["port"] for rule in egress for port in rule["ports"]}
    assert {6443, 443} <= ports


@pytest.mark.parametrize(
    "scenario", sorted({path.stem for path in SCENARIOS.glob("*.yaml")} - {"api-source"})
)
def test_no_other_scenario_has_rights_at_the_api(scenario: str, tmp_path: Path) -> None:
    release = Release(scenario, tmp_path)
    assert not release.every("Role")
    assert {pod["automountServiceAccountToken"] for pod in release.pods.values()} == {False}


def test_device_plugin_asks_for_gpus_as_a_resource(tmp_path: Path) -> None:
    release = Release("device-plugin", tmp_path)
    pod = release.pod
    workload = release.only("Deployment")["spec"]
    assert agent(pod)["resources"]["limits"]["nvidia.com/gpu"] == 2
    assert agent(pod)["resources"]["limits"]["memory"] == "64Gi"
    assert env(pod)["XGEN_GPU_MODE"] == "plugin"
    assert "NVIDIA_VISIBLE_DEVICES" not in env(pod)
    assert not {"nodeSelector", "runtimeClassName"} & pod.keys()
    assert workload["replicas"] == 3
    assert workload["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    (rule,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert rule["topologyKey"] == "kubernetes.io/hostname"
