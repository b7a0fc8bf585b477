"""Kubeconfigs and service accounts that lead to a server of the tests."""

import json
from pathlib import Path
from typing import Any

from reconciler.source.kubernetes_access import KubernetesAccess
from tests.source.kubernetes_server import Server


def kubeconfig(
    folder: Path,
    server: Server,
    *,
    user: dict[str, Any] | None = None,
    cluster: dict[str, Any] | None = None,
) -> Path:
    """One context, of one cluster and one user. JSON is YAML."""
    at = {"server": server.url, **(cluster or {})}
    if server.certificate is not None and cluster is None:
        at["certificate-authority"] = str(server.certificate)
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "tests",
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
        "clusters": [{"name": "tests", "cluster": at}],
        "users": [{"name": "tests", "user": user or {}}],
    }
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config))
    return path


def service_account(folder: Path, server: Server, token: str) -> KubernetesAccess:
    """As a pod has it."""
    assert server.certificate is not None
    folder.mkdir(exist_ok=True)
    (folder / "ca.crt").write_bytes(server.certificate.read_bytes())
    (folder / "token").write_text(token)
    return KubernetesAccess(
        service_host="localhost", service_port=str(server.port), service_account=folder
    )
