"""How git reaches a manifest: the flags of every command that takes its URL."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from reconciler.errors import Rejected
from reconciler.source.git_access import PUBLIC, GitAccess, check_access
from reconciler.source.git_address import is_address, parse_address
from reconciler.source.kubernetes_address import is_config_map

_PROXIES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")

GitWebhookSecretFile = Annotated[
    Path | None,
    typer.Option(
        "--git-webhook-secret-file",
        envvar="XGEN_GIT_WEBHOOK_SECRET_FILE",
        metavar="FILE",
        help="The secret of a git host's webhook that posts to /api/management/pushed: the "
        "manifest is then looked at once. Read at each use.",
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class GitOptions:
    """As given, of the flags or the environment."""

    git_token_file: Annotated[
        Path | None,
        typer.Option(
            "--git-token-file",
            envvar="XGEN_GIT_TOKEN_FILE",
            metavar="FILE",
            help="A token or password for git+https; the user's name stands in the URL "
            "(git+https://NAME@HOST/…). Read at each use.",
        ),
    ] = None
    git_ssh_key: Annotated[
        Path | None,
        typer.Option(
            "--git-ssh-key",
            envvar="XGEN_GIT_SSH_KEY",
            metavar="FILE",
            help="A private key without passphrase, for git+ssh.",
        ),
    ] = None
    git_known_hosts: Annotated[
        Path | None,
        typer.Option(
            "--git-known-hosts",
            envvar="XGEN_GIT_KNOWN_HOSTS",
            metavar="FILE",
            help="The keys of hosts, for git+ssh (as ssh-keyscan prints them). "
            "No other is trusted.",
        ),
    ] = None
    git_ca_file: Annotated[
        Path | None,
        typer.Option(
            "--git-ca-file",
            envvar=["XGEN_GIT_CA_FILE", "SSL_CERT_FILE"],
            metavar="FILE",
            help="Certificates of authorities for git+https, as PEM. [default: the system's]",
        ),
    ] = None
    git_allowed_signers: Annotated[
        Path | None,
        typer.Option(
            "--git-allowed-signers",
            envvar="XGEN_GIT_ALLOWED_SIGNERS",
            metavar="FILE",
            help="Take only commits with an ssh signature of somebody in this file "
            "(ssh-keygen's ALLOWED SIGNERS).",
        ),
    ] = None
    git_timeout: Annotated[
        float | None,
        typer.Option(
            "--git-timeout",
            envvar="XGEN_GIT_TIMEOUT",
            metavar="SECONDS",
            min=1.0,
            help="After which a git that asks or fetches is killed. [default: 60]",
        ),
    ] = None
    git_max_mib: Annotated[
        int | None,
        typer.Option(
            "--git-max-mib",
            envvar="XGEN_GIT_MAX_MIB",
            metavar="MIB",
            min=1,
            help="The most that a fetch may bring. A git that writes more is killed. "
            "[default: 256]",
        ),
    ] = None

    def access(
        self, manifest: str | None, environment: Mapping[str, str] = os.environ
    ) -> GitAccess:
        """Raises typer.BadParameter where `manifest` is a URL that cannot be."""
        access = GitAccess(
            token_file=_absolute(self.git_token_file),
            ssh_key=_absolute(self.git_ssh_key),
            known_hosts=_absolute(self.git_known_hosts),
            ca_file=_absolute(self.git_ca_file),
            allowed_signers=_absolute(self.git_allowed_signers),
            search_path=environment.get("PATH", ""),
            proxies={
                name: environment[name]
                for each in _PROXIES
                for name in (each, each.upper())
                if environment.get(name)
            },
            timeout_seconds=PUBLIC.timeout_seconds
            if self.git_timeout is None
            else self.git_timeout,
            max_bytes=PUBLIC.max_bytes if self.git_max_mib is None else self.git_max_mib << 20,
        )
        if manifest is not None and is_address(manifest) and not is_config_map(manifest):
            try:
                check_access(parse_address(manifest), access)
            except Rejected as exc:
                raise typer.BadParameter(str(exc), param_hint="--manifest") from exc
        return access


GIT_DEFAULTS = GitOptions()


def _absolute(path: Path | None) -> Path | None:
    return None if path is None else path.absolute()
