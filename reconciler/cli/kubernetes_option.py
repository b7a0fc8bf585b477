"""How the Kubernetes API is reached for a manifest: the flags of every command that reads one."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from reconciler.errors import Rejected
from reconciler.source.kubernetes_access import KubernetesAccess, check_cluster
from reconciler.source.kubernetes_address import is_config_map, parse_config_map

Kubeconfig = Annotated[
    Path | None,
    typer.Option(
        "--kubeconfig",
        envvar=["XGEN_KUBECONFIG", "KUBECONFIG"],
        metavar="FILE",
        help="For configmap:// outside of a cluster. [default: the pod's service account]",
    ),
]
KubeContext = Annotated[
    str | None,
    typer.Option(
        "--kube-context",
        envvar="XGEN_KUBE_CONTEXT",
        metavar="NAME",
        help="A context of the kubeconfig. [default: its current one]",
    ),
]


def kubernetes_access(
    manifest: str | None,
    kubeconfig: Path | None,
    context: str | None,
    *,
    environment: Mapping[str, str] = os.environ,
) -> KubernetesAccess:
    """As given. Raises typer.BadParameter where `manifest` is a ConfigMap that cannot be."""
    access = KubernetesAccess(
        kubeconfig=None if kubeconfig is None else kubeconfig.absolute(),
        context=context,
        service_host=environment.get("KUBERNETES_SERVICE_HOST", ""),
        service_port=environment.get("KUBERNETES_SERVICE_PORT", ""),
    )
    if manifest is not None and is_config_map(manifest):
        try:
            parse_config_map(manifest)
            check_cluster(access)
        except Rejected as exc:
            raise typer.BadParameter(str(exc), param_hint="--manifest") from exc
    return access
