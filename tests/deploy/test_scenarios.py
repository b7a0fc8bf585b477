"""What each values file of the folder scenarios is for, in the objects that come of it.

That all of them pass helm and Kubernetes' schemas shows test_chart.py.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.helm import CHART, HELM, MISSING, render
from tests.deploy.rendering import Release

pytestmark = pytest.mark.skipif(not HELM.exists(), reason=MISSING)

SCENARIOS = CHART / "scenarios"


def installed(scenario: str, home: Path) -> Release:
    return Release(render("-f", str(SCENARIOS / f"{scenario}.yaml"), home=home))


def pods(release: Release) -> dict[str, Any]:
    """By pool."""
    names = [each["metadata"]["labels"]["xgen.io/pool"] for each in release.workloads]
    return {name: release.pod(name) for name in names}


def mounted(release: Release, path: str, pool: str = "default") -> Any:
    """The volume that is mounted there."""
    (mount,) = [each for each in release.agent(pool)["volumeMounts"] if each["mountPath"] == path]
    return release.volume(mount["name"], pool)


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
    release = installed(scenario, tmp_path)
    texts = [
        (name, text)
        for each in release.all("ConfigMap")
        for name, text in (each.get("data") or {}).items()
        if name.endswith(".yaml")
    ]
    for name, text in texts:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        peers = release.environment()["XGEN_PEERS"]
        command = ["-m", "reconciler", "validate", "--peers", peers, str(path)]
        done = subprocess.run(
            [sys.executable, *command], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "warning" not in done.stdout + done.stderr
    brings = {"k3s-nvidia", "air-gapped", "device-plugin"}
    assert bool(texts) == (scenario in brings)


@pytest.mark.parametrize("scenario", sorted(path.stem for path in SCENARIOS.glob("*.yaml")))
def test_its_priority_class_is_there_or_is_not_asked_for(scenario: str, tmp_path: Path) -> None:
    release = installed(scenario, tmp_path)
    made = {each["metadata"]["name"] for each in release.all("PriorityClass")}
    asked = {pod.get("priorityClassName") for pod in pods(release).values()} - {None}
    assert asked == made


def test_k3s_nvidia_gives_all_gpus_of_each_labelled_node(tmp_path: Path) -> None:
    release = installed("k3s-nvidia", tmp_path)
    pod = release.pod()
    assert release.one("DaemonSet")
    assert pod["runtimeClassName"] == "nvidia"
    assert pod["nodeSelector"] == {"gpu": "nvidia"}
    assert release.environment()["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert release.environment()["XGEN_CACHE_BUDGET"] == "80%"
    assert "nvidia.com/gpu" not in str(release.agent()["resources"])
    assert any(each["key"] == "xgen.io/gpu" for each in pod["tolerations"])
    types = {each["spec"]["type"] for each in release.all("Service")}
    assert types == {"ClusterIP", "LoadBalancer"}


def test_mixed_vendors_is_one_cluster_of_three_pools(tmp_path: Path) -> None:
    release = installed("mixed-vendors", tmp_path)
    chosen = {name: pod["nodeSelector"]["gpu"] for name, pod in pods(release).items()}
    assert chosen == {"nvidia": "nvidia", "amd": "amd", "cpu": "none"}
    assert len({release.environment(name)["XGEN_PEERS"] for name in chosen}) == 1
    images = {name: release.agent(name)["image"].rpartition("-")[2] for name in chosen}
    assert images == {"nvidia": "cuda", "amd": "rocm", "cpu": "cpu"}
    for name in chosen:
        token = release.environment(name)["XGEN_CLUSTER_TOKEN_FILE"]
        assert token == "/etc/xgen-model/cluster/token"
        manifest = mounted(release, "/etc/xgen-model/manifest", name)
        assert manifest["configMap"]["name"] == "production"
    for each in release.all("DaemonSet"):
        assert each["spec"]["updateStrategy"] == {"type": "OnDelete"}
    assert release.one("ServiceMonitor")
    assert release.one("PrometheusRule")


def test_mixed_vendors_gives_amd_its_devices_and_privileges_to_no_other_pool(
    tmp_path: Path,
) -> None:
    release = installed("mixed-vendors", tmp_path)
    for path in ("/dev/kfd", "/dev/dri"):
        assert mounted(release, path, "amd")["hostPath"]["path"] == path
    assert release.pod("amd")["securityContext"]["supplementalGroups"]
    every = pods(release)
    privileged = {
        name for name in every if release.agent(name)["securityContext"].get("privileged")
    }
    assert privileged == {"amd"}
    assert {name for name, pod in every.items() if "runtimeClassName" in pod} == {"nvidia"}


def test_cpu_laptop_is_alone_and_asks_for_no_gpu(tmp_path: Path) -> None:
    release = installed("cpu-laptop", tmp_path)
    pod = release.pod()
    assert release.one("Deployment")["spec"]["replicas"] == 1
    assert "XGEN_PEERS" not in release.environment()
    assert not {"runtimeClassName", "nodeSelector", "priorityClassName"} & pod.keys()
    assert "NVIDIA_VISIBLE_DEVICES" not in release.environment()
    assert release.agent()["image"].endswith("-cpu")
    assert mounted(release, "/hub")["hostPath"]["path"] == "/srv/hub"
    assert not release.all("PodDisruptionBudget")


def test_air_gapped_takes_all_from_within_and_lets_nothing_out(tmp_path: Path) -> None:
    release = installed("air-gapped", tmp_path)
    pod = release.pod()
    every = [*pod["containers"], *pod.get("initContainers", [])]
    images = {each["image"] for each in every}
    assert all(each.startswith("registry.internal.example:5000/mirror/") for each in images)
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert release.environment()["XGEN_HUB"] == "/hub"
    assert mounted(release, "/hub")["nfs"]["readOnly"] is True
    assert "MINIO_ENDPOINT" not in release.environment()
    policy = release.one("NetworkPolicy")["spec"]
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    ports = {port["port"] for rule in policy["egress"] for port in rule["ports"]}
    assert ports == {53, 8000}
    assert all(rule["to"] for rule in policy["egress"])


def test_git_source_reads_one_repository_with_credentials_by_file(tmp_path: Path) -> None:
    release = installed("git-source", tmp_path)
    told = release.environment()
    assert told["XGEN_MANIFEST"] == (
        "git+https://git.example.com/org/models.git?ref=main&path=manifests%2Fproduction"
    )
    files = {
        "XGEN_GIT_TOKEN_FILE": "/etc/xgen-model/git/token",
        "XGEN_GIT_ALLOWED_SIGNERS": "/etc/xgen-model/git/allowed_signers",
        "XGEN_GIT_WEBHOOK_SECRET_FILE": "/etc/xgen-model/git/webhook",
    }
    assert files.items() <= told.items()
    secret = mounted(release, "/etc/xgen-model/git")["secret"]
    assert secret["secretName"] == "models-git"
    assert {each["key"] for each in secret["items"]} == {"token", "allowed_signers", "webhook"}
    assert told["SSL_CERT_FILE"].startswith("/etc/xgen-model/ca/")
    assert not release.all("ConfigMap")
    (rule,) = release.one("Ingress")["spec"]["rules"]
    paths = {each["path"] for each in rule["http"]["paths"]}
    assert paths == {"/v1", "/api/management/pushed"}


def test_api_source_may_read_that_one_config_map_and_has_a_token(tmp_path: Path) -> None:
    release = installed("api-source", tmp_path)
    assert release.environment()["XGEN_MANIFEST"] == "configmap://models/production"
    assert release.pod()["automountServiceAccountToken"] is True
    reads, tells = release.one("Role")["rules"]
    assert reads["resourceNames"] == ["production"]
    assert set(reads["verbs"]) == {"get", "list", "watch"}
    assert (tells["resources"], set(tells["verbs"])) == (["events"], {"create", "patch"})
    egress = release.one("NetworkPolicy")["spec"]["egress"]
    ports = {port["port"] for rule in egress for port in rule["ports"]}
    assert {6443, 443} <= ports


@pytest.mark.parametrize(
    "scenario", sorted({path.stem for path in SCENARIOS.glob("*.yaml")} - {"api-source"})
)
def test_no_other_scenario_has_rights_at_the_api(scenario: str, tmp_path: Path) -> None:
    release = installed(scenario, tmp_path)
    assert not release.all("Role")
    assert {pod["automountServiceAccountToken"] for pod in pods(release).values()} == {False}


def test_device_plugin_asks_for_gpus_as_a_resource(tmp_path: Path) -> None:
    release = installed("device-plugin", tmp_path)
    pod = release.pod()
    workload = release.one("Deployment")["spec"]
    assert release.agent()["resources"]["limits"]["nvidia.com/gpu"] == 2
    assert release.agent()["resources"]["limits"]["memory"] == "64Gi"
    assert release.environment()["XGEN_GPU_MODE"] == "plugin"
    assert "NVIDIA_VISIBLE_DEVICES" not in release.environment()
    assert not {"nodeSelector", "runtimeClassName"} & pod.keys()
    assert workload["replicas"] == 3
    assert workload["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    (rule,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert rule["topologyKey"] == "kubernetes.io/hostname"
