"""GPUs: how each vendor's come into a pod, and where its pods go."""

from typing import Any

import pytest

from tests.deploy.helm import HELM, MISSING
from tests.deploy.rendering import Chart

pytestmark = pytest.mark.skipif(not HELM.exists(), reason=MISSING)

TOLERATION = {"key": "xgen.io/gpu", "operator": "Exists", "effect": "NoSchedule"}


def test_by_default_an_agent_has_all_nvidia_gpus_of_its_host(chart: Chart) -> None:
    release = chart()
    assert release.pod()["runtimeClassName"] == "nvidia"
    own = release.environment()
    assert own["NVIDIA_VISIBLE_DEVICES"] == "all"
    assert own["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    assert own["XGEN_GPU_MODE"] == "node"
    # Without a limit: the scheduler would count them, and the plugin choose.
    assert "limits" not in release.agent()["resources"]


def test_a_device_plugin_gives_some(chart: Chart) -> None:
    release = chart({"gpu": {"mode": "plugin", "count": 2}, "resources": {"limits": {"cpu": 8}}})
    assert release.agent()["resources"]["limits"] == {"cpu": 8, "nvidia.com/gpu": 2}
    own = release.environment()
    assert own["XGEN_GPU_MODE"] == "plugin"
    # The plugin sets it; ours would give all of them.
    assert "NVIDIA_VISIBLE_DEVICES" not in own
    assert release.pod()["runtimeClassName"] == "nvidia"


def test_a_plugin_may_call_them_otherwise(chart: Chart) -> None:
    gpu = {"mode": "plugin", "resourceName": "nvidia.com/mig-1g.10gb"}
    assert chart({"gpu": gpu}).agent()["resources"]["limits"] == {"nvidia.com/mig-1g.10gb": 1}


def test_amd_by_host_devices_is_privileged_and_in_the_groups(chart: Chart) -> None:
    release = chart(
        {
            "gpu": {"vendor": "amd"},
            "securityContext": {"privileged": True},
            "podSecurityContext": {"supplementalGroups": [44, 110]},
        }
    )
    pod = release.pod()
    assert "runtimeClassName" not in pod
    assert pod["securityContext"]["supplementalGroups"] == [44, 110]
    assert pod["securityContext"]["runAsUser"] == 10001
    for index, device in enumerate(("/dev/kfd", "/dev/dri")):
        assert release.volume(f"device-{index}")["hostPath"] == {"path": device}
        assert release.mount(f"device-{index}")["mountPath"] == device
    # An API server refuses a privileged container that forbids escalation.
    context = release.agent()["securityContext"]
    assert (context["privileged"], context["allowPrivilegeEscalation"]) == (True, True)
    assert not [name for name in release.environment() if name.startswith("NVIDIA")]


def test_amd_by_a_plugin_needs_no_privilege(chart: Chart) -> None:
    release = chart({"gpu": {"vendor": "amd", "mode": "plugin", "count": 4}})
    assert release.agent()["resources"]["limits"] == {"amd.com/gpu": 4}
    assert "privileged" not in release.agent()["securityContext"]
    assert release.volume("device-0") is None


def test_amd_by_its_container_runtime_needs_no_privilege(chart: Chart) -> None:
    release = chart({"gpu": {"vendor": "amd"}, "runtimeClassName": "amd"})
    assert release.pod()["runtimeClassName"] == "amd"
    assert release.environment()["AMD_VISIBLE_DEVICES"] == "all"
    assert release.volume("device-0") is None


def test_without_gpus_nothing_is_asked_for(chart: Chart) -> None:
    release = chart({"gpu": {"vendor": "none"}})
    pod = release.pod()
    assert "runtimeClassName" not in pod
    assert "nodeSelector" not in pod
    assert not [name for name in release.environment() if "VISIBLE" in name]
    assert release.environment()["XGEN_GPU_MODE"] == "node"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({}, {"gpu": "nvidia"}),
        ({"gpu": {"vendor": "amd", "mode": "plugin"}}, {"gpu": "amd"}),
        ({"nodeSelector": {"pool": "big"}}, {"pool": "big"}),
        ({"nodeSelector": {}}, None),
    ],
)
def test_which_hosts(values: dict[str, Any], expected: dict[str, str] | None, chart: Chart) -> None:
    pod = chart(values).pod()
    assert pod.get("nodeSelector") == expected
    assert pod["tolerations"] == [TOLERATION]


def test_a_runtime_whose_default_has_the_gpus_is_not_named(chart: Chart) -> None:
    release = chart({"runtimeClassName": ""})
    assert "runtimeClassName" not in release.pod()
    assert release.environment()["NVIDIA_VISIBLE_DEVICES"] == "all"


def test_shared_memory_is_in_memory_and_bounded(chart: Chart) -> None:
    release = chart({"storage": {"shm": {"sizeLimit": "32Gi"}}})
    assert release.volume("shm")["emptyDir"] == {"medium": "Memory", "sizeLimit": "32Gi"}
    assert release.mount("shm")["mountPath"] == "/dev/shm"
