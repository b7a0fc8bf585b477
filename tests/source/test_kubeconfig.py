"""Which server a kubeconfig means and what it is shown, against a server that asks for it."""

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import pytest

from reconciler.errors import XgenError
from reconciler.source.kubernetes_access import SERVICE_ACCOUNT, KubernetesAccess
from reconciler.source.kubernetes_address import parse_config_map
from reconciler.source.kubernetes_api import KubernetesApi
from tests.source.git_https import certificate
from tests.source.kubernetes_files import kubeconfig, service_account
from tests.source.kubernetes_server import Server, serving

ADDRESS = parse_config_map("configmap://models/models")


async def found(access: KubernetesAccess) -> dict[str, str] | None:
    api = KubernetesApi(access, answer_seconds=20)
    try:
        held = (await api.find(ADDRESS)).object
        return held.data if held is not None else None
    finally:
        await api.aclose()


def refusal(path: Path, context: str | None = None) -> str:
    with pytest.raises(XgenError) as caught:
        asyncio.run(found(KubernetesAccess(kubeconfig=path, context=context)))
    return str(caught.value)


def inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


@pytest.mark.parametrize("how", ["files", "data"])
def test_a_certificate_is_enough(tmp_path: Path, how: str) -> None:
    """As kind and kubeadm have it."""
    ours, client = certificate(tmp_path, "ours"), certificate(tmp_path, "client")
    key = client.with_suffix(".key")
    with serving(Server(certificate=ours, clients=client)) as server:
        server.store.put({"a.yaml": "1"})
        if how == "files":
            user = {"client-certificate": client.name, "client-key": key.name}
            path = kubeconfig(tmp_path, server, user=user)
        else:
            user = {"client-certificate-data": inline(client), "client-key-data": inline(key)}
            cluster = {"certificate-authority-data": inline(ours)}
            path = kubeconfig(tmp_path, server, user=user, cluster=cluster)
        assert asyncio.run(found(KubernetesAccess(kubeconfig=path))) == {"a.yaml": "1"}


def test_another_name_in_the_certificate_can_be_asked_for(tmp_path: Path) -> None:
    with serving(Server(certificate=certificate(tmp_path, "ours"))) as server:
        server.store.put({"a.yaml": "1"})
        at = {"server": f"https://127.0.0.1:{server.port}", "certificate-authority": "ours.pem"}
        path = kubeconfig(tmp_path, server, cluster=at)
        assert "is not trusted: IP address mismatch" in refusal(path)
        path = kubeconfig(tmp_path, server, cluster={**at, "tls-server-name": "localhost"})
        assert asyncio.run(found(KubernetesAccess(kubeconfig=path))) == {"a.yaml": "1"}


def test_a_token_stands_in_it_or_in_a_file_beside_it(tmp_path: Path) -> None:
    with serving(Server(tokens={"t0k3n"})) as server:
        server.store.put({"a.yaml": "1"})
        (tmp_path / "token").write_text("t0k3n\n")
        for user in ({"token": "t0k3n"}, {"tokenFile": "token", "token": "old"}):
            path = kubeconfig(tmp_path, server, user=user)
            assert asyncio.run(found(KubernetesAccess(kubeconfig=path))) == {"a.yaml": "1"}
        assert "(401)" in refusal(kubeconfig(tmp_path, server))
        for text, said in (("", "it is empty"), ("a\nb", "it is no token")):
            (tmp_path / "token").write_text(text)
            path = kubeconfig(tmp_path, server, user={"tokenFile": "token"})
            assert refusal(path) == f"cannot use the token in {tmp_path}/token: {said}"


def test_without_an_authority_the_systems_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = certificate(tmp_path, "ours")
    with serving(Server(certificate=ours)) as server:
        server.store.put({"a.yaml": "1"})
        path = kubeconfig(tmp_path, server, cluster={"server": server.url})
        assert "is not trusted: self-signed certificate" in refusal(path)
        monkeypatch.setenv("SSL_CERT_FILE", str(ours))
        assert asyncio.run(found(KubernetesAccess(kubeconfig=path))) == {"a.yaml": "1"}


@pytest.mark.parametrize(
    ("cluster", "user", "said"),
    [
        ({"server": "http://192.0.2.1:80"}, {}, "http://192.0.2.1:80 is not encrypted"),
        ({"server": ""}, {}, "its cluster has no server (https://HOST:PORT)"),
        ({"insecure-skip-tls-verify": True}, {}, "anybody may pose as the cluster"),
        ({"proxy-url": "http://192.0.2.1"}, {}, "its cluster has a proxy-url; use `kubectl proxy"),
        ({}, {"exec": {"command": "aws"}}, "from a program, which is not run here; use `kubectl"),
        ({}, {"username": "u", "password": "s3cr3t"}, "its user has a password"),
        ({"certificate-authority-data": "%"}, {}, "its certificate-authority-data is no base64"),
        ({"certificate-authority": "gone"}, {}, "gone: no such file or directory"),
        ({}, {"tokenFile": "gone"}, "gone: no such file or directory"),
    ],
)
def test_says_what_it_cannot_use(
    tmp_path: Path, cluster: dict[str, Any], user: dict[str, Any], said: str
) -> None:
    path = kubeconfig(tmp_path, Server(port=1), cluster=cluster, user=user)
    assert said in (text := refusal(path))
    assert "s3cr3t" not in text


def test_says_which_of_its_parts_is_missing(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, Server(port=1))
    assert "there is no 'prod' among its contexts" in refusal(path, "prod")
    config = json.loads(path.read_text())
    for key, said in (
        ("users", "there is no 'tests' among its users"),
        ("clusters", "there is no 'tests' among its clusters"),
        ("current-context", "it has no current-context; name one: --kube-context"),
    ):
        path.write_text(json.dumps({name: part for name, part in config.items() if name != key}))
        assert said in refusal(path)
    for text, said in (("[", "it is no YAML"), ("- 1", "it is no kubeconfig")):
        path.write_text(text)
        assert refusal(path) == f"cannot use {path}: {said}"
    path.unlink()
    assert refusal(path) == f"cannot read {path}: no such file or directory"


def test_a_pod_without_a_token_is_told_so(tmp_path: Path) -> None:
    server = Server(certificate=certificate(tmp_path, "ours"))
    access = service_account(tmp_path / "account", server, "t")
    (access.service_account / "ca.crt").unlink()
    with pytest.raises(XgenError) as caught:
        asyncio.run(found(access))
    assert "the pod has no service account token" in str(caught.value)
    assert str(SERVICE_ACCOUNT) == "/var/run/secrets/kubernetes.io/serviceaccount"


def test_what_is_no_kubernetes_api_is_told_apart(tmp_path: Path) -> None:
    with serving() as server:
        other = {"server": f"{server.url}/elsewhere"}
        assert "answers 404" in refusal(kubeconfig(tmp_path, server, cluster=other))
