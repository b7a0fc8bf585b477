"""Which cluster an agent belongs to: the flags of every command that is told so."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated

import typer

from reconciler.plan.peering import Peering, normal_host
from reconciler.plan.peering_text import parse_peering


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """As given, of the flags or the environment."""

    peers: Annotated[
        str | None,
        typer.Option(
            "--peers",
            envvar="XGEN_PEERS",
            metavar="PEERS",
            help="The other agents: dns:NAME:PORT of a headless Service, or HOST:PORT,HOST:PORT. "
            "[default: this agent is alone]",
        ),
    ] = None
    cluster_token_file: Annotated[
        Path | None,
        typer.Option(
            "--cluster-token-file",
            envvar="XGEN_CLUSTER_TOKEN_FILE",
            metavar="FILE",
            help="A secret that the agents of a cluster share, by which they know each other. "
            "Read again when it changes.",
        ),
    ] = None

    @property
    def token_file(self) -> Path | None:
        return None if self.cluster_token_file is None else self.cluster_token_file.absolute()


NodesPeers = Annotated[
    str | None,
    typer.Option(
        "--peers",
        envvar="XGEN_PEERS",
        metavar="PEERS",
        help="What the agents are given as --peers. With it each model has to name its nodes. "
        "[default: each agent is alone]",
    ),
]
"""Of commands that judge a manifest without an agent."""

CLUSTER_DEFAULTS = ClusterOptions()


def peering_of(given: str | None) -> Peering | None:
    """None where nothing is given. Raises typer.BadParameter."""
    if given is None or not given.strip():
        return None
    try:
        return parse_peering(given)
    except ValueError as exc:
        raise typer.BadParameter(str(exc), param_hint="--peers (XGEN_PEERS)") from exc


def pod_name(environment: Mapping[str, str] = os.environ) -> str | None:
    """None off Kubernetes."""
    return environment.get("POD_NAME", "").strip() or None


def pod_ip(environment: Mapping[str, str] = os.environ) -> str | None:
    """None off Kubernetes. Raises typer.BadParameter."""
    given = environment.get("POD_IP", "").strip()
    if not given:
        return None
    try:
        ip_address(given)
    except ValueError as exc:
        raise typer.BadParameter(f"{given!r} is no IP address", param_hint="POD_IP") from exc
    return normal_host(given)
