"""Where a release's manifest and model files come from."""

from typing import Any

import pytest
import yaml

from reconciler.source.git_address import parse_address
from reconciler.source.kubernetes_address import parse_config_map
from reconciler.source.kubernetes_role import role
from tests.deploy.helm import HELM, MISSING
from tests.deploy.rendering import Chart

pytestmark = pytest.mark.skipif(not HELM.exists(), reason=MISSING)

TEXT = "kind: ModelManifest\nspec:\n  # kept {{ as it is }}\n  models: []\n"


def test_files_are_one_folder(chart: Chart) -> None:
    release = chart({"manifest": {"files": {"a.yaml": TEXT, "b.yml": {"kind": "X", "size": 1}}}})
    data = release.one("ConfigMap")["data"]
    assert data["a.yaml"] == TEXT
    assert yaml.safe_load(data["b.yml"]) == {"kind": "X", "size": 1}
    name = release.one("ConfigMap")["metadata"]["name"]
    assert release.volume("manifest")["configMap"]["name"] == name
    mount = release.mount("manifest")
    # No subPath: kubelet never updates one.
    assert mount == {
        "name": "manifest",
        "mountPath": "/etc/xgen-model/manifest",
        "readOnly": True,
    }
    assert release.environment()["XGEN_MANIFEST"] == mount["mountPath"]


def test_without_files_kubectl_may_write_them_and_helm_claims_none(chart: Chart) -> None:
    made = chart().one("ConfigMap")
    assert made["metadata"]["name"] == "xgen-xgen-model-manifest"
    assert "data" not in made


def test_a_config_map_of_somebody_else(chart: Chart) -> None:
    release = chart({"manifest": {"existingConfigMap": "prod"}})
    assert not release.all("ConfigMap")
    # A pod whose ConfigMap has gone starts, and goes on with the last good one.
    assert release.volume("manifest")["configMap"] == {"name": "prod", "optional": True}


@pytest.mark.parametrize("source", ["mount", "git"])
def test_no_rights_are_asked_for_without_the_api(source: str, chart: Chart) -> None:
    git = {"url": "https://git.example.com/m.git"} if source == "git" else {}
    release = chart({"manifest": {"source": source, "git": git}})
    assert not release.all("Role") + release.all("RoleBinding")
    assert release.pod()["automountServiceAccountToken"] is False
    assert release.one("ServiceAccount")["automountServiceAccountToken"] is False


def test_by_the_api_the_role_is_the_one_that_doctor_prints(chart: Chart) -> None:
    manifest = {"source": "api", "existingConfigMap": "prod", "namespace": "gitops"}
    release = chart({"manifest": manifest})
    place = release.environment()["XGEN_MANIFEST"]
    assert place == "configmap://gitops/prod"
    told, _ = yaml.safe_load_all(role(parse_config_map(place)))
    ours = release.one("Role")
    assert ours["rules"] == told["rules"]
    assert ours["metadata"]["namespace"] == "gitops"
    binding = release.one("RoleBinding")
    assert binding["metadata"]["namespace"] == "gitops"
    assert binding["roleRef"]["name"] == ours["metadata"]["name"]
    account = {"kind": "ServiceAccount", "name": "xgen-xgen-model", "namespace": "models"}
    assert binding["subjects"] == [account]
    assert release.pod()["serviceAccountName"] == account["name"]
    assert release.pod()["automountServiceAccountToken"] is True
    assert release.volume("manifest") is None


def test_by_the_api_files_may_be_the_charts_own(chart: Chart) -> None:
    release = chart({"manifest": {"source": "api", "files": {"a.yaml": TEXT}}})
    name = release.one("ConfigMap")["metadata"]["name"]
    assert release.environment()["XGEN_MANIFEST"] == f"configmap://models/{name}"
    assert release.one("Role")["rules"][0]["resourceNames"] == [name]


def test_rights_may_be_somebody_elses(chart: Chart) -> None:
    release = chart({"manifest": {"source": "api"}, "rbac": {"create": False}})
    assert not release.all("Role") + release.all("RoleBinding")
    assert release.pod()["automountServiceAccountToken"] is True


@pytest.mark.parametrize("path", ["manifests/prod", "with blank", "a&b=c"])
def test_a_repository_is_named_as_agents_read_it(path: str, chart: Chart) -> None:
    git = {"url": "https://me@git.example.com/org/m.git", "ref": "release/1.2", "path": path}
    release = chart({"manifest": {"source": "git", "git": git}})
    address = parse_address(release.environment()["XGEN_MANIFEST"])
    assert (address.ref, address.path) == ("release/1.2", path)
    assert (address.url, address.user) == ("https://git.example.com/org/m.git", "me")
    assert not release.all("ConfigMap")
    assert release.volume("git") is None


def test_a_token_is_mounted_alone(chart: Chart) -> None:
    git = {"url": "https://git.example.com/m.git", "existingSecret": "git"}
    release = chart({"manifest": {"source": "git", "git": git}})
    assert release.environment()["XGEN_GIT_TOKEN_FILE"] == "/etc/xgen-model/git/token"
    assert release.volume("git")["secret"] == {
        "secretName": "git",
        "defaultMode": 0o440,
        "items": [{"key": "token", "path": "token"}],
    }
    assert "XGEN_GIT_SSH_KEY" not in release.environment()


def test_ssh_with_signatures_and_a_webhook(chart: Chart) -> None:
    keys = {"allowedSigners": "signers", "webhookSecret": "hook"}
    git = {
        "url": "ssh://git@git.example.com/m.git",
        "existingSecret": "git",
        "secretKeys": keys,
    }
    release = chart({"manifest": {"source": "git", "git": git}})
    files = {
        name: value.rpartition("/")[2]
        for name, value in release.environment().items()
        if name.startswith("XGEN_GIT_")
    }
    assert files == {
        "XGEN_GIT_SSH_KEY": "ssh-privatekey",
        "XGEN_GIT_KNOWN_HOSTS": "known_hosts",
        "XGEN_GIT_ALLOWED_SIGNERS": "signers",
        "XGEN_GIT_WEBHOOK_SECRET_FILE": "hook",
    }
    items = release.volume("git")["secret"]["items"]
    assert {each["path"] for each in items} == set(files.values())
    assert parse_address(release.environment()["XGEN_MANIFEST"]).ref == "HEAD"


def test_a_token_may_be_left_out_where_only_signatures_count(chart: Chart) -> None:
    keys = {"token": "", "allowedSigners": "signers"}
    git = {"url": "https://x.org/m.git", "existingSecret": "git", "secretKeys": keys}
    release = chart({"manifest": {"source": "git", "git": git}})
    assert "XGEN_GIT_TOKEN_FILE" not in release.environment()
    assert len(release.volume("git")["secret"]["items"]) == 1


def test_an_s3_hub_has_its_keys_by_reference(chart: Chart) -> None:
    hub = {
        "location": "s3://models",
        "endpoint": "https://s3.example.com",
        "region": "eu",
        "existingSecret": "hub",
        "secretKeys": {"accessKey": "root"},
    }
    own = chart({"hub": hub}).environment()
    assert own["XGEN_HUB"] == "s3://models"
    assert (own["MINIO_ENDPOINT"], own["MINIO_REGION"]) == ("https://s3.example.com", "eu")
    assert own["MINIO_ACCESS_KEY"] == {"secretKeyRef": {"name": "hub", "key": "root"}}
    assert own["MINIO_SECRET_KEY"] == {"secretKeyRef": {"name": "hub", "key": "MINIO_SECRET_KEY"}}


@pytest.mark.parametrize(
    "volume",
    [
        {"nfs": {"server": "nas", "path": "/models"}},
        {"hostPath": {"path": "/mnt/usb"}},
        {"persistentVolumeClaim": {"claimName": "hub"}},
    ],
)
def test_a_directory_hub_is_mounted_to_be_read(volume: dict[str, Any], chart: Chart) -> None:
    release = chart({"hub": {"location": "/hub", "volume": volume}})
    assert release.environment()["XGEN_HUB"] == "/hub"
    assert release.volume("hub") == {"name": "hub", **volume}
    assert release.mount("hub") == {"name": "hub", "mountPath": "/hub", "readOnly": True}


@pytest.mark.parametrize("kind", ["configMap", "secret"])
def test_certificates_of_an_own_authority(kind: str, chart: Chart) -> None:
    release = chart({"trustedCA": {kind: "corp", "key": "bundle.pem"}})
    source = release.volume("ca")[kind]
    assert source["items"] == [{"key": "bundle.pem", "path": "ca.crt"}]
    assert "corp" in source.values()
    assert release.environment()["SSL_CERT_FILE"] == f"{release.mount('ca')['mountPath']}/ca.crt"
