"""Options and defaults that several commands share; the environment is read here, once."""

import os
from pathlib import Path
from typing import Annotated

import typer

from reconciler.cache.budget import Budget, parse_budget
from reconciler.errors import Rejected
from reconciler.hub.endpoint import bucket_and_base
from reconciler.node.hub import STORE_VARIABLES
from reconciler.plan.gpu_mode import GpuMode
from reconciler.plan.stop_limit import StopLimit, stop_limit_of
from reconciler.settings import HubSettings

EPHEMERAL = range(32768, 61000)
"""Linux's default range of ports for outgoing connections (gpustack#4557, #5181)."""

DataDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir",
        envvar="XGEN_DATA_DIR",
        metavar="DIR",
        help="The agent's data folder. [default: /var/lib/xgen-model as root, "
        "else $XDG_STATE_HOME/xgen-model]",
    ),
]

ServerOption = Annotated[
    str | None,
    typer.Option(
        "--server",
        envvar="XGEN_SERVER",
        metavar="URL",
        help="URL of an agent. [default: the one that the data folder names]",
    ),
]

TargetOption = Annotated[
    str | None,
    typer.Option(
        "--target",
        envvar="XGEN_TARGET",
        metavar="NODE",
        help="The node that answers, asked through that agent: its name, its pod's, or an IP "
        "address. [default: the agent's own]",
    ),
]

GpuModeOption = Annotated[
    GpuMode,
    typer.Option(
        "--gpu-mode",
        envvar="XGEN_GPU_MODE",
        help="Whose GPUs an agent uses: all of the node, or those that a device plugin gave its "
        "container, which models then count (`gpus:`) and do not name.",
    ),
]

GpuModeOrAgents = Annotated[
    GpuMode | None,
    typer.Option(
        "--gpu-mode",
        envvar="XGEN_GPU_MODE",
        help="As `run` would get it. [default: the agent's, else node]",
    ),
]


def stop_limit_of_option(given: str) -> StopLimit:
    """Raises BadParameter."""
    limit = stop_limit_of(given.strip())
    if limit is None:
        raise typer.BadParameter(
            f"must be a share such as 50%, a number such as 3, or none, not {given!r}",
            param_hint="--stop-limit",
        )
    return limit


def data_dir(given: Path | None) -> Path:
    """The data folder: as given, else the system's, else the user's."""
    if given is not None:
        return given.absolute()
    if os.geteuid() == 0:
        return Path("/var/lib/xgen-model")
    state = os.environ.get("XDG_STATE_HOME")
    return (Path(state) if state else Path.home() / ".local" / "state") / "xgen-model"


def hub_settings(location: str | None) -> HubSettings:
    """The hub's settings, with the store's own variables; an empty one is not set."""
    return HubSettings(
        location=location,
        variables={
            name: value for name in STORE_VARIABLES if (value := os.environ.get(name, "").strip())
        },
        http_proxy=_either_case("http_proxy"),
        https_proxy=_either_case("https_proxy"),
        no_proxy=_either_case("no_proxy"),
    )


def _either_case(name: str) -> str:
    """A proxy variable; the lower-case name wins, as in curl."""
    return os.environ.get(name) or os.environ.get(name.upper()) or ""


def listen_address(value: str) -> tuple[str, int]:
    """`host:port`, `:port` or `[v6]:port`; port 0 lets the kernel choose."""
    host, colon, port = value.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise typer.BadParameter(f"{value!r} is not HOST:PORT", param_hint="--listen")
    return host.strip("[]") or "0.0.0.0", int(port)


def cache_budget(value: str | None, *, flag: str = "--cache-budget") -> Budget | None:
    """`200GiB`, `500GB`, or `80%` of the disk. `flag`: what the command calls it."""
    try:
        return None if value is None else parse_budget(value)
    except ValueError as exc:
        raise typer.BadParameter(f"{value!r}: {exc}", param_hint=flag) from exc


def hub_location(value: str) -> str:
    """`s3://BUCKET`, `s3://BUCKET/BASE` or a directory."""
    if "://" in value:
        try:
            bucket_and_base(value)
        except Rejected as exc:
            said = f"{value!r} is neither s3://BUCKET[/BASE] nor a directory"
            raise typer.BadParameter(said, param_hint="--hub") from exc
    return value


def port_range(value: str) -> range:
    """`18000-18999`, both ends included."""
    first, dash, last = value.partition("-")
    if not (dash and first.isdigit() and last.isdigit() and 0 < int(first) <= int(last) < 65536):
        raise typer.BadParameter(f"{value!r} is not FIRST-LAST", param_hint="--ports")
    ports = range(int(first), int(last) + 1)
    if ports.start <= EPHEMERAL[-1] and EPHEMERAL[0] <= ports[-1]:
        raise typer.BadParameter(
            f"{value!r} reaches into {EPHEMERAL[0]}-{EPHEMERAL[-1]}, from which the kernel takes "
            "ports for outgoing connections",
            param_hint="--ports",
        )
    return ports
