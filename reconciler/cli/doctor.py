"""`xgen-model doctor`: looks at this machine as an agent would, and explains what is amiss."""

import os
import socket
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from reconciler.backend.inventory import NamedEngine
from reconciler.cli.allowed import AllowedFiles, AllowedFlags, AllowedVariables, permissions
from reconciler.cli.checks.agent import agent_findings
from reconciler.cli.checks.data_folder import data_folder_findings, lock_holder
from reconciler.cli.checks.engines import engine_findings
from reconciler.cli.checks.file_roots import file_root_findings
from reconciler.cli.checks.finding import Finding, Level, ok, skip
from reconciler.cli.checks.gpu import gpu_findings
from reconciler.cli.checks.hub import hub_findings, mirror_findings
from reconciler.cli.checks.machine import machine_findings
from reconciler.cli.checks.manifest import manifest_findings
from reconciler.cli.checks.peers import peer_findings, token_findings
from reconciler.cli.checks.ports import port_findings
from reconciler.cli.cluster_option import (
    CLUSTER_DEFAULTS,
    ClusterOptions,
    peering_of,
    pod_ip,
)
from reconciler.cli.engine_option import EngineOption, named_engines
from reconciler.cli.exits import ExitCode
from reconciler.cli.git_option import GIT_DEFAULTS, GitOptions
from reconciler.cli.gpus import numbers_known
from reconciler.cli.kubernetes_option import Kubeconfig, KubeContext, kubernetes_access
from reconciler.cli.node_name import node_name
from reconciler.cli.option_group import with_groups
from reconciler.cli.options import (
    DataDir,
    GpuModeOrAgents,
    ServerOption,
    data_dir,
    hub_settings,
    listen_address,
    port_range,
)
from reconciler.cli.output import Output, OutputOption, console, print_json, show
from reconciler.cli.running_settings import RunningSettings, running_settings
from reconciler.manifest.policy import Permissions
from reconciler.node.data_folder import read_json
from reconciler.plan.desired import Desired
from reconciler.plan.gpu_mode import GpuMode
from reconciler.plan.peering import Peering
from reconciler.settings import HubSettings
from reconciler.source.git_access import GitAccess
from reconciler.source.kubernetes_access import KubernetesAccess

_COLOURS = {Level.OK: "green", Level.SKIP: "dim", Level.WARN: "yellow", Level.FAIL: "bold red"}

_SUBJECT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is looked at: the settings that an agent would be given. `agent`: the pid of the one
    whose settings they are, where nothing else is given; None: none runs."""

    agent: int | None
    manifest: str | None
    git: GitAccess
    cluster: KubernetesAccess
    hub: HubSettings
    node: str | None
    listen: tuple[str, int]
    peering: Peering | None
    cluster_token_file: Path | None
    pod_ip: str | None
    folder: Path
    models_dir: Path
    llama_server: str | None
    vllm: str | None
    llama_cpp_python: str | None
    engines: tuple[NamedEngine, ...]
    gpu_mode: GpuMode
    permissions: Permissions
    ports: range
    search_path: str
    server: str | None


@with_groups
def doctor(
    manifest: Annotated[
        str | None,
        typer.Option(
            envvar="XGEN_MANIFEST", metavar="PATH", help="The manifest that `run` would get."
        ),
    ] = None,
    hub: Annotated[
        str | None, typer.Option(envvar="XGEN_HUB", metavar="HUB", help="Its hub.")
    ] = None,
    node: Annotated[
        str | None,
        typer.Option(envvar=["XGEN_NODE", "NODE_NAME"], metavar="NAME", help="Its name."),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(
            envvar="XGEN_LISTEN",
            metavar="HOST:PORT",
            help="Its address. [default: 127.0.0.1:8000]",
        ),
    ] = None,
    data: DataDir = None,
    models_dir: Annotated[
        Path | None, typer.Option(envvar="XGEN_MODELS_DIR", metavar="DIR", help="Its cache.")
    ] = None,
    llama_server: Annotated[
        str | None, typer.Option(envvar="XGEN_LLAMA_SERVER", metavar="PATH", help="Its engine.")
    ] = None,
    vllm: Annotated[
        str | None, typer.Option(envvar="XGEN_VLLM", metavar="PATH", help="Its vLLM.")
    ] = None,
    llama_cpp_python: Annotated[
        str | None,
        typer.Option(
            envvar="XGEN_LLAMA_CPP_PYTHON", metavar="PYTHON", help="Its llama-cpp-python."
        ),
    ] = None,
    engine: EngineOption = None,
    gpu_mode: GpuModeOrAgents = None,
    allow_engine_arg: AllowedFlags = None,
    allow_engine_env: AllowedVariables = None,
    allow_file_root: AllowedFiles = None,
    ports: Annotated[
        str | None,
        typer.Option(
            envvar="XGEN_PORTS",
            metavar="FIRST-LAST",
            help="For its backends. [default: 18000-18999]",
        ),
    ] = None,
    git: GitOptions = GIT_DEFAULTS,
    kubeconfig: Kubeconfig = None,
    kube_context: KubeContext = None,
    members: ClusterOptions = CLUSTER_DEFAULTS,
    server: ServerOption = None,
    output: OutputOption = Output.TEXT,
) -> int:
    """Check this machine and explain what is amiss, each with the next step. Changes nothing.

    Where an agent runs with the data folder, its settings hold for all that is not given; else give
    it the flags or the environment that `run` gets.

    Exit 0: nothing fails (there may be warnings). 1: something does.
    """
    folder = data_dir(data)
    agent = running_settings(folder)
    roots = [*map(str, allow_file_root)] if allow_file_root else None
    place = agent.text("manifest", manifest)
    subject = Subject(
        agent=agent.pid,
        manifest=place,
        git=agent.filled(git).access(place),
        cluster=kubernetes_access(
            place,
            agent.path("kubeconfig", kubeconfig),
            agent.text("kube_context", kube_context),
        ),
        hub=hub_settings(_hub(agent, hub)),
        node=node_name(agent.text("node", node)),
        listen=listen_address(agent.text("listen", listen) or "127.0.0.1:8000"),
        peering=peering_of(agent.text("peers", members.peers)),
        cluster_token_file=agent.path("cluster_token_file", members.token_file),
        pod_ip=agent.text("pod_ip", pod_ip()),
        folder=folder,
        models_dir=(agent.path("models_dir", models_dir) or folder / "models").absolute(),
        llama_server=agent.text("llama_server", llama_server),
        vllm=agent.text("vllm", vllm),
        llama_cpp_python=agent.text("llama_cpp_python", llama_cpp_python),
        engines=named_engines(agent.texts("engine", engine)),
        gpu_mode=GpuMode(agent.text("gpu_mode", gpu_mode) or GpuMode.NODE),
        permissions=permissions(
            agent.texts("allow_engine_arg", allow_engine_arg),
            agent.texts("allow_engine_env", allow_engine_env),
            [*map(Path, agent.texts("allow_file_root", roots))],
        ),
        ports=port_range(agent.text("ports", ports) or "18000-18999"),
        search_path=agent.text("path", None) or os.environ.get("PATH", ""),
        server=server,
    )
    found = _findings(subject)
    findings = list(found) if output is Output.JSON else _printed(found)
    failed = any(finding.level is Level.FAIL for finding in findings)
    if output is Output.JSON:
        print_json(
            {"api": 1, "ok": not failed, "checks": [_as_json(finding) for finding in findings]}
        )
    return ExitCode.ERROR if failed else ExitCode.OK


def _hub(agent: RunningSettings, given: str | None) -> str | None:
    """A store's keys stand in the agent's environment alone: of that one the agent itself tells."""
    told = agent.text("hub", given)
    return None if told is not None and given is None and "://" in told else told


def _findings(subject: Subject) -> Iterator[Finding]:
    if subject.agent is not None:
        said = f"those of the agent (pid {subject.agent}), but for what is given here"
        yield ok("settings", said)
    host = socket.gethostname()
    yield from machine_findings(subject.models_dir)
    known = numbers_known(subject.folder, subject.gpu_mode)
    yield from gpu_findings(mode=subject.gpu_mode, known=known)
    yield from data_folder_findings(subject.folder, subject.node, host)
    remembered = read_json(subject.folder / "node.json").get("node")
    desired: Desired | None = None
    if subject.manifest is None:
        yield skip("manifest", "none is given", "give --manifest PATH")
    else:
        node = subject.node or str(remembered or host)
        desired, found = manifest_findings(
            subject.manifest,
            subject.git,
            subject.cluster,
            node,
            subject.permissions,
            peers=subject.peering is not None,
        )
        yield from found
    yield from hub_findings(subject.hub, desired)
    yield from mirror_findings(os.environ)
    yield from file_root_findings(subject.permissions.file_roots)
    yield from engine_findings(
        subject.llama_server,
        subject.vllm,
        subject.llama_cpp_python,
        subject.engines,
        desired,
        subject.permissions,
        subject.search_path,
    )
    holder = lock_holder(subject.folder)
    yield from port_findings(subject.listen, subject.ports, holder=holder, server=subject.server)
    yield from token_findings(subject.cluster_token_file)
    yield from peer_findings(subject.peering, subject.listen, subject.pod_ip, holder=holder)
    yield from agent_findings(subject.server, subject.folder, holder=holder)


def _printed(findings: Iterator[Finding]) -> list[Finding]:
    """Each as soon as it is found: some take seconds."""
    out = console()
    seen = []
    for finding in findings:
        seen.append(finding)
        show(out, _row(finding))
    counted = Counter(finding.level for finding in seen)
    warnings = f"{counted[Level.WARN]} warning{'' if counted[Level.WARN] == 1 else 's'}"
    said = f"{counted[Level.OK]} ok, {warnings}, {counted[Level.FAIL]} failed"
    show(out, Text(f"\n{said}", style="bold"))
    return seen


def _row(finding: Finding) -> Table:
    """What does not fit is wrapped at words, beside its subject."""
    row = Table.grid(padding=(0, 2, 0, 0))
    row.add_column(width=4)
    row.add_column(min_width=_SUBJECT, no_wrap=True)
    row.add_column()
    subject = Text(finding.subject, style="bold")
    row.add_row(Text(finding.level, style=_COLOURS[finding.level]), subject, Text(finding.said))
    if finding.next is not None:
        row.add_row("", "", Text(f"→ {finding.next}", style="cyan"))
    return row


def _as_json(finding: Finding) -> dict[str, object]:
    return {
        "subject": finding.subject,
        "level": finding.level,
        "message": finding.said,
        "next": finding.next,
    }
