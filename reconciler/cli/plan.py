"""`xgen-model plan`: what a manifest would start, restart and stop, before it is committed."""

import socket
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from reconciler.cli.asked import told_by
from reconciler.cli.candidate import read_candidate
from reconciler.cli.client import Agent, find_agent, known_agent
from reconciler.cli.cluster_option import NodesPeers, peering_of
from reconciler.cli.exits import ExitCode
from reconciler.cli.git_option import GIT_DEFAULTS, GitOptions
from reconciler.cli.kubernetes_option import Kubeconfig, KubeContext, kubernetes_access
from reconciler.cli.node_name import node_name
from reconciler.cli.offline_plan.fleet_file import read_fleet
from reconciler.cli.offline_plan.hub_offers import hub_offers
from reconciler.cli.offline_plan.options import (
    BeforeOption,
    FleetOption,
    PlanHub,
    WithoutOption,
    read_old,
    refuse_without,
    said_against,
)
from reconciler.cli.offline_plan.plans import OfflineQuestion, offline_plans
from reconciler.cli.option_group import with_groups
from reconciler.cli.options import DataDir, ServerOption, data_dir
from reconciler.cli.output import console, print_json, show
from reconciler.cli.plan_markdown import as_markdown
from reconciler.cli.plan_view import as_json, as_text
from reconciler.cli.plan_words import has_changes
from reconciler.node.data_folder import read_json
from reconciler.plan.changes import NodeChanges, Verb


class PlanOutput(StrEnum):
    TEXT = "text"
    JSON = "json"
    MARKDOWN = "markdown"


@with_groups
def plan(
    manifest: Annotated[
        str | None,
        typer.Option(
            envvar="XGEN_MANIFEST",
            metavar="PATH",
            help="The manifest to judge: a file, a directory, or a git repository's URL or a "
            "ConfigMap as `run` takes it. Without it: what the agent itself is about to do.",
        ),
    ] = None,
    node: Annotated[
        str | None,
        typer.Option(
            envvar=["XGEN_NODE", "NODE_NAME"],
            metavar="NAME",
            help="Only this node, which the agent asks: there is no --target here. [default: every "
            "node that the agent knows; offline every node that the manifest names]",
        ),
    ] = None,
    server: ServerOption = None,
    data: DataDir = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Ask no agent. Without --from: nothing runs.")
    ] = False,
    before: BeforeOption = None,
    fleet: FleetOption = None,
    hub: PlanHub = None,
    peers: NodesPeers = None,
    without: WithoutOption = None,
    output: Annotated[
        PlanOutput, typer.Option(help="For people, machines, or a pull request's comment.")
    ] = PlanOutput.TEXT,
    git: GitOptions = GIT_DEFAULTS,
    kubeconfig: Kubeconfig = None,
    kube_context: KubeContext = None,
) -> int:
    """Say what a manifest would start, restart and stop, and why. Changes nothing.

    With an agent (--server, or the one that the data folder names) the manifest is compared with
    what runs there; without one, or --offline, with the manifest --from, or with nothing. Then no
    engine, no GPU and no network are needed: --fleet says what the nodes are.

    Exit 0: nothing to do. 2: changes, also such as a rail holds back. 1: an error, a model that is
    refused, a newest revision that is, or a node that could not be asked.
    """
    node = node_name(node)
    folder = data_dir(data)
    access = git.access(manifest)
    cluster = kubernetes_access(manifest, kubeconfig, kube_context)
    refuse_without(without)
    offline = offline or before is not None or fleet is not None
    agent = None if offline else known_agent(server, folder)
    if manifest is None:
        if offline:
            raise typer.BadParameter("--offline needs --manifest PATH", param_hint="--manifest")
        agent = find_agent(server, folder)
        nodes = list(told_by(agent, node, None))
        against = f"as the agent at {agent.url} plans it now"
    elif agent is None:
        question = OfflineQuestion(
            wanted=read_candidate(manifest, access, cluster).manifest,
            before=read_old(before, git, kubeconfig, kube_context) if before else None,
            fleet=read_fleet(fleet) if fleet else None,
            node=node,
            peers=peering_of(peers) is not None,
        )
        with hub_offers(hub) as offers:
            nodes = offline_plans(question, offers, here=_here(folder))
        against = said_against(before, fleet, runs=question.before is not None)
    else:
        nodes = list(told_by(agent, node, read_candidate(manifest, access, cluster).files))
        against = f"compared with what runs there (asked through the agent at {agent.url})"
    _print(nodes, output, agent=agent, against=against, what=manifest)
    return exit_code(nodes)


def exit_code(nodes: Sequence[NodeChanges]) -> ExitCode:
    if any(each.count(Verb.REFUSED) or each.errors or each.unasked for each in nodes):
        return ExitCode.ERROR
    return ExitCode.CHANGES if has_changes(nodes) else ExitCode.OK


def _here(folder: Path) -> str:
    return str(read_json(folder / "node.json").get("node") or socket.gethostname())


def _print(
    nodes: Sequence[NodeChanges],
    output: PlanOutput,
    *,
    agent: Agent | None,
    against: str,
    what: str | None,
) -> None:
    """`what`: the manifest that is judged; None: the agent's own."""
    match output:
        case PlanOutput.TEXT:
            show(console(), as_text(nodes, against=against))
        case PlanOutput.JSON:
            print_json(as_json(nodes, agent=agent.url if agent else None, against=against))
        case PlanOutput.MARKDOWN:
            said = as_markdown(nodes, against=against, what=what or "the manifest in force")
            typer.echo(said, nl=False)
