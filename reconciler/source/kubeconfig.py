"""A kubeconfig, as kubectl takes it: which server a context means, and what is shown to it.

Programs that a kubeconfig names for credentials are not run: an agent runs for months, and runs
nothing but engines.
"""

import base64
import binascii
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from reconciler.errors import Rejected

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_PROXY = "`kubectl proxy --port 8001` and a kubeconfig whose server is http://127.0.0.1:8001"

Read = Callable[[Path, str], bytes]
Entries = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """`server`: its URL. `authorities`, `certificate`, `key`: PEM; authorities None: the system's.

    `server_name`: which the server's certificate has to have; None: that of the URL. `token_file`
    goes before `token`.
    """

    server: str
    authorities: bytes | None = None
    server_name: str | None = None
    certificate: bytes | None = None
    key: bytes | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None


def parse_kubeconfig(text: bytes, file: Path, context: str | None, *, read: Read) -> Cluster:
    """What `context` (None: the current one) means. `read`: of the files that it names, relative to
    its own folder. Raises Rejected, or what `read` raises."""
    try:
        config = YAML(typ="safe", pure=True).load(text)
    except (YAMLError, ValueError) as exc:
        raise Rejected(f"cannot use {file}: it is no YAML") from exc
    if not isinstance(config, dict):
        raise Rejected(f"cannot use {file}: it is no kubeconfig")
    chosen = context or config.get("current-context")
    if not chosen:
        raise Rejected(f"cannot use {file}: it has no current-context; name one: --kube-context")
    means = _named(config, "contexts", "context", chosen, file)
    cluster = _named(config, "clusters", "cluster", means.get("cluster"), file)
    user = _named(config, "users", "user", means["user"], file) if means.get("user") else {}
    _check(cluster, user, file)
    token_file = user.get("tokenFile")
    return Cluster(
        server=str(cluster["server"]).rstrip("/"),
        authorities=_content(cluster, "certificate-authority", file, read),
        server_name=_text(cluster, "tls-server-name"),
        certificate=_content(user, "client-certificate", file, read),
        key=_content(user, "client-key", file, read),
        token=_text(user, "token"),
        token_file=None if token_file is None else file.parent / str(token_file),
    )


def _named(config: Entries, group: str, kind: str, name: object, file: Path) -> Entries:
    entries = config.get(group)
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and entry.get("name") == name:
            found = entry.get(kind)
            return found if isinstance(found, dict) else {}
    raise Rejected(f"cannot use {file}: there is no {name!r} among its {group}")


def _check(cluster: Entries, user: Entries, file: Path) -> None:
    """Raises Rejected for what would not be safe, and for what is not done here."""
    url = urlsplit(str(cluster.get("server") or ""))
    if url.scheme not in ("https", "http") or not url.hostname:
        raise Rejected(f"cannot use {file}: its cluster has no server (https://HOST:PORT)")
    if url.scheme == "http" and url.hostname not in _LOOPBACK:
        raise Rejected(f"cannot use {file}: {cluster['server']} is not encrypted")
    if cluster.get("insecure-skip-tls-verify"):
        raise Rejected(
            f"cannot use {file}: with insecure-skip-tls-verify anybody may pose as the cluster; "
            "give certificate-authority"
        )
    for key, means in (
        ("exec", "it gets its credentials from a program, which is not run here"),
        ("auth-provider", "its auth-provider is not known here"),
        ("username", "its user has a password, which Kubernetes takes no more"),
    ):
        if user.get(key):
            raise Rejected(f"cannot use {file}: {means}; use {_PROXY}, or a tokenFile")
    if cluster.get("proxy-url"):
        raise Rejected(f"cannot use {file}: its cluster has a proxy-url; use {_PROXY}")


def _content(entries: Entries, key: str, file: Path, read: Read) -> bytes | None:
    """`KEY-data` in base64, or the file that `KEY` names."""
    data = entries.get(f"{key}-data")
    if data:
        try:
            return base64.b64decode(str(data), validate=True)
        except binascii.Error as exc:
            raise Rejected(f"cannot use {file}: its {key}-data is no base64") from exc
    named = entries.get(key)
    return read(file.parent / str(named), "") if named else None


def _text(entries: Entries, key: str) -> str | None:
    value = entries.get(key)
    return str(value) if value else None
