"""How the Kubernetes API is reached, as the files have it now.

Every file is read again for each request: tokens and authorities are replaced while we run.
"""

import os
import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from reconciler.errors import Rejected, Transient
from reconciler.source.kubeconfig import Cluster, parse_kubeconfig
from reconciler.source.kubernetes_access import KubernetesAccess, check_cluster

_MAX_BYTES = 1 << 20
_NO_ACCOUNT = (
    "the pod has no service account token (automountServiceAccountToken: true, or a projected one)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The API server, and what we show it now. `token` None: the certificate is all."""

    cluster: Cluster
    token: str | None = field(repr=False)


def entry(access: KubernetesAccess) -> Entry:
    """As the files have it now. Blocking. Raises Transient or Rejected."""
    check_cluster(access)
    if access.kubeconfig is None:
        return _of_the_pod(access)
    text = _read(access.kubeconfig, "")
    cluster = parse_kubeconfig(text, access.kubeconfig, access.context, read=_read)
    token = cluster.token
    if cluster.token_file is not None:
        token = _token(cluster.token_file, "")
    return Entry(cluster=cluster, token=token)


def ssl_context(cluster: Cluster) -> ssl.SSLContext:
    """Blocking: it may read the system's authorities. Raises Rejected."""
    try:
        authorities = None if cluster.authorities is None else cluster.authorities.decode()
        context = ssl.create_default_context(cadata=authorities)
    except (ssl.SSLError, ValueError) as exc:
        raise Rejected("cannot use the cluster's certificate authority: it is no PEM") from exc
    # Python 3.13 asks more of an authority than Go does, and many clusters' own do not have it.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if cluster.certificate is not None and cluster.key is not None:
        _load_certificate(context, cluster.certificate, cluster.key)
    return context


def _load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """By a file that nobody else can read, and that is gone at once: Python takes no other way."""
    descriptor, name = tempfile.mkstemp(prefix="xgen-client-")
    try:
        with open(descriptor, "wb") as file:
            file.write(certificate + b"\n" + key)
        context.load_cert_chain(name)
    except ssl.SSLError as exc:
        raise Rejected("cannot use the client certificate and key of the kubeconfig") from exc
    finally:
        os.unlink(name)


def _of_the_pod(access: KubernetesAccess) -> Entry:
    host = f"[{access.service_host}]" if ":" in access.service_host else access.service_host
    folder = access.service_account
    cluster = Cluster(
        server=f"https://{host}:{access.service_port}",
        authorities=_read(folder / "ca.crt", _NO_ACCOUNT),
    )
    return Entry(cluster=cluster, token=_token(folder / "token", _NO_ACCOUNT))


def _token(path: Path, step: str) -> str:
    token = _read(path, step).decode(errors="replace").strip()
    if not token or not token.isascii() or not token.isprintable():
        raise Transient(f"cannot use the token in {path}: it is {'no token' if token else 'empty'}")
    return token


def _read(path: Path, step: str) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES)
    except OSError as exc:
        cause = (exc.strerror or str(exc)).lower()
        raise Transient(f"cannot read {path}: {cause}{f'; {step}' if step else ''}") from exc
