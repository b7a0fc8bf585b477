"""Which Kubernetes API is meant: the pod's own, or a kubeconfig's (PURE)."""

from dataclasses import dataclass
from pathlib import Path

from reconciler.errors import Rejected

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesAccess:
    """`kubeconfig`: None: as a pod has it. `context`: of the kubeconfig; None: its current one.

    `service_host`, `service_port`: what a pod is told of the API server; empty: there is no pod.
    `service_account`: the folder with `token` and `ca.crt`.
    """

    kubeconfig: Path | None = None
    context: str | None = None
    service_host: str = ""
    service_port: str = ""
    service_account: Path = SERVICE_ACCOUNT


NO_CLUSTER = KubernetesAccess()
"""Outside of a pod, without a kubeconfig."""


def check_cluster(access: KubernetesAccess) -> None:
    """Raises Rejected where nothing says which API server is meant."""
    if access.kubeconfig is None and not (access.service_host and access.service_port):
        raise Rejected(
            "cannot tell which Kubernetes API is meant: this is no pod (KUBERNETES_SERVICE_HOST "
            "is not set); name a kubeconfig with --kubeconfig FILE"
        )
    if access.kubeconfig is None and access.context is not None:
        raise Rejected("cannot use --kube-context without --kubeconfig FILE")
