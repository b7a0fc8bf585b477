"""What a pod may do, whose its folders are, and which secrets it holds."""

from typing import Any

import pytest

from tests.deploy.helm import HELM, MISSING
from tests.deploy.rendering import Chart

pytestmark = pytest.mark.skipif(not HELM.exists(), reason=MISSING)


def test_an_agent_is_no_root_and_can_become_nothing_more(chart: Chart) -> None:
    release = chart()
    pod = release.pod()["securityContext"]
    assert (pod["runAsNonRoot"], pod["runAsUser"], pod["runAsGroup"]) == (True, 10001, 10001)
    assert pod["seccompProfile"] == {"type": "RuntimeDefault"}
    assert release.agent()["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    for name in ("hostNetwork", "hostPID", "hostIPC"):
        assert name not in release.pod()


def test_all_that_is_written_to_is_mounted(chart: Chart) -> None:
    release = chart()
    own = release.environment()
    writable = [
        each["mountPath"] for each in release.agent()["volumeMounts"] if not each.get("readOnly")
    ]
    assert set(writable) == {"/var/lib/xgen-model", "/app/models", "/dev/shm", "/tmp"}
    assert {own["XGEN_DATA_DIR"], own["XGEN_MODELS_DIR"], own["HOME"]} < set(writable)


def test_root_gives_host_folders_to_the_agent_and_can_do_no_more(chart: Chart) -> None:
    release = chart()
    (first,) = release.pod()["initContainers"]
    assert first["command"] == [
        "chown",
        "--no-dereference",
        "10001:10001",
        "/var/lib/xgen-model",
        "/app/models",
    ]
    context = first["securityContext"]
    assert context["runAsUser"] == 0
    assert context["capabilities"] == {"drop": ["ALL"], "add": ["CHOWN"]}
    assert context["allowPrivilegeEscalation"] is False
    assert {each["mountPath"] for each in first["volumeMounts"]} == set(first["command"][3:])


@pytest.mark.parametrize(
    ("values", "owner"),
    [
        ({"podSecurityContext": {"runAsGroup": None}}, "10001:10001"),
        # A runtime gives a user that the image does not know the group 0.
        ({"podSecurityContext": {"runAsUser": 2000, "runAsGroup": None}}, "2000:0"),
        ({"podSecurityContext": {"runAsUser": 2000, "runAsGroup": 3000}}, "2000:3000"),
        ({"securityContext": {"runAsUser": 2000, "runAsGroup": 4000}}, "2000:4000"),
    ],
)
def test_folders_are_given_to_the_group_that_the_agent_has(
    values: dict[str, Any], owner: str, chart: Chart
) -> None:
    (first,) = chart(values).pod()["initContainers"]
    assert owner in first["command"]


def test_what_is_in_the_folders_may_be_given_too(chart: Chart) -> None:
    (first,) = chart({"storage": {"permissions": {"recursive": True}}}).pod()["initContainers"]
    assert "--recursive" in first["command"]
    assert "DAC_READ_SEARCH" in first["securityContext"]["capabilities"]["add"]


@pytest.mark.parametrize(
    "values",
    [
        {"storage": {"permissions": {"fix": False}}},
        {"podSecurityContext": {"runAsUser": 0, "runAsNonRoot": False}},
        {
            "storage": {
                "data": {"type": "claim", "existingClaim": "d"},
                "models": {"type": "emptyDir"},
            }
        },
    ],
)
def test_no_root_where_no_folder_has_to_be_given(values: dict[str, Any], chart: Chart) -> None:
    assert "initContainers" not in chart(values).pod()


def test_agents_that_share_a_claim_have_a_data_folder_each(chart: Chart) -> None:
    claim = {"type": "claim", "existingClaim": "shared"}
    release = chart({"storage": {"data": claim, "models": claim}})
    assert release.volume("data")["persistentVolumeClaim"] == {"claimName": "shared"}
    assert release.mount("data")["subPathExpr"] == "$(NODE_NAME)"
    assert release.environment()["NODE_NAME"] == {
        "fieldRef": {"apiVersion": "v1", "fieldPath": "spec.nodeName"}
    }
    # Model files are shared: whoever needs one finds it.
    assert "subPathExpr" not in release.mount("models")
    assert release.pod()["securityContext"]["fsGroup"] == 10001


@pytest.mark.parametrize(
    ("storage", "expected"),
    [
        ({}, {"hostPath": {"path": "/var/lib/xgen-model/data", "type": "DirectoryOrCreate"}}),
        ({"path": "/srv"}, {"hostPath": {"path": "/srv", "type": "DirectoryOrCreate"}}),
        ({"type": "emptyDir", "sizeLimit": "1Gi"}, {"emptyDir": {"sizeLimit": "1Gi"}}),
        ({"type": "emptyDir"}, {"emptyDir": {}}),
    ],
)
def test_where_folders_are(storage: dict[str, str], expected: dict[str, Any], chart: Chart) -> None:
    volume = chart({"storage": {"data": storage}}).volume("data")
    assert volume == {"name": "data", **expected}


def test_a_cluster_token_is_a_file_of_its_secret(chart: Chart) -> None:
    release = chart({"cluster": {"existingSecret": "peers", "secretKey": "t"}})
    assert release.volume("cluster")["secret"] == {
        "secretName": "peers",
        "defaultMode": 0o440,
        "items": [{"key": "t", "path": "token"}],
    }
    assert release.mount("cluster")["readOnly"] is True
    told = release.environment()["XGEN_CLUSTER_TOKEN_FILE"]
    assert told == f"{release.mount('cluster')['mountPath']}/token"
    assert "XGEN_CLUSTER_TOKEN_FILE" not in chart().environment()


@pytest.mark.parametrize(
    ("pod", "mode"),
    [
        ({}, 0o440),
        # Root's alone, as nobody else is there; the group is not the agent's.
        ({"runAsUser": 0, "runAsNonRoot": False, "fsGroup": None}, 0o400),
        # Kubelet makes files of root's: without a group of theirs an agent could not read them.
        ({"fsGroup": None}, 0o444),
    ],
)
def test_an_agent_can_read_its_secrets(pod: dict[str, Any], mode: int, chart: Chart) -> None:
    git = {"url": "ssh://git@git.example.com/m.git", "existingSecret": "git"}
    release = chart(
        {
            "podSecurityContext": pod,
            "manifest": {"source": "git", "git": git},
            "cluster": {"existingSecret": "peers"},
        }
    )
    for name in ("git", "cluster"):
        assert release.volume(name)["secret"]["defaultMode"] == mode


def test_the_chart_makes_no_secret(chart: Chart) -> None:
    release = chart(
        {
            "cluster": {"existingSecret": "a"},
            "hub": {"location": "s3://m", "existingSecret": "b"},
            "env": {"HF_TOKEN": {"valueFrom": {"secretKeyRef": {"name": "hf", "key": "t"}}}},
        }
    )
    assert not release.all("Secret")
    assert release.environment()["HF_TOKEN"] == {"secretKeyRef": {"name": "hf", "key": "t"}}


@pytest.mark.parametrize(
    ("account", "name", "made"),
    [
        ({}, "xgen-xgen-model", True),
        ({"name": "mine"}, "mine", True),
        ({"name": "mine", "create": False}, "mine", False),
        ({"create": False}, "default", False),
    ],
)
def test_the_account(account: dict[str, Any], name: str, made: bool, chart: Chart) -> None:
    release = chart({"serviceAccount": account})
    assert release.pod()["serviceAccountName"] == name
    assert [each["metadata"]["name"] for each in release.all("ServiceAccount")] == [name] * made


def test_the_preparation_keeps_no_pod_from_being_guaranteed(chart: Chart) -> None:
    same = {"cpu": "8", "memory": "64Gi"}
    gpu = {"mode": "plugin", "count": 2}
    pod = chart({"resources": {"requests": same, "limits": same}, "gpu": gpu}).pod()
    (first,) = pod["initContainers"]
    assert first["resources"] == {"requests": same, "limits": same}  # and no GPU, to change owners
