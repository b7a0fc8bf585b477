"""A manifest that is a ConfigMap and could not be read: the step to take."""

from collections.abc import Iterator

from reconciler.cli.checks.finding import Finding, ok, warn
from reconciler.cli.config_map import NotRead, missing_rights
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
            return _allow(address, str(exc))
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


def config_map_rights(place: str, access: KubernetesAccess) -> Iterator[Finding]:
    """Of one that could be read: whether an agent would hear of changes, and tell of bad ones."""
    address = parse_config_map(place)
    missing = missing_rights(place, access)
    if "watch" in missing:
        said = f"edits are seen within a minute only: cannot watch {place}: {missing['watch']}"
        yield warn("manifest", said, _next(address, access, missing["watch"]))
    if "events" in missing:
        said = f"a bad edit is told in no Event on {place}: {missing['events']}"
        yield warn("manifest", said, _next(address, access, missing["events"]))
    if not missing:
        yield ok("manifest", "edits are heard of at once, and bad ones are told in Events")


def _next(address: ConfigMapAddress, access: KubernetesAccess, cause: str) -> str:
    return _allow(address, cause) if "(403)" in cause else _try(address, access)


def _allow(address: ConfigMapAddress, refusal: str) -> str:
    subject = subject_of(refusal)
    return f"allow it: kubectl apply -f - with\n{role(address, subject=subject)}".rstrip()


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
