"""A manifest that is a ConfigMap and could not be read: the step to take."""

from reconciler.cli.config_map import NotRead
from reconciler.errors import XgenError
from reconciler.source.kubernetes_access import KubernetesAccess
from reconciler.source.kubernetes_address import ConfigMapAddress, parse_config_map
from reconciler.source.kubernetes_role import role, subject_of


def config_map_step(place: str, access: KubernetesAccess, exc: Exception) -> str:
    """By what the API server has answered, if it has."""
    if not isinstance(exc, NotRead):
        if isinstance(exc, XgenError) and access.kubeconfig is None:
            return "in a pod it needs no flag; elsewhere: --kubeconfig FILE"
        return "correct --manifest configmap://NAMESPACE/NAME, or --kubeconfig"
    address = parse_config_map(place)
    match exc.status:
        case 403:
            subject = subject_of(str(exc))
            return f"allow it: kubectl apply -f - with\n{role(address, subject=subject)}".rstrip()
        case 404:
            return f"make it, or correct --manifest: {_make(address)}"
        case 401:
            return _try(address, access)
        case None if access.kubeconfig is None:
            return (
                "has the pod a token (automountServiceAccountToken), and may it reach the API "
                f"server ({access.service_host}:{access.service_port}; a NetworkPolicy)?"
            )
        case _:
            return _try(address, access)


def _make(address: ConfigMapAddress) -> str:
    return (
        f"kubectl -n {address.namespace} create configmap {address.name} --from-file=FOLDER "
        "--dry-run=client -o yaml | kubectl apply --server-side -f -"
    )


def _try(address: ConfigMapAddress, access: KubernetesAccess) -> str:
    by = "" if access.kubeconfig is None else f" --kubeconfig {access.kubeconfig}"
    context = "" if access.context is None else f" --context {access.context}"
    what = f"-n {address.namespace} get configmap {address.name}"
    return f"does kubectl get further? kubectl{by}{context} {what}"
