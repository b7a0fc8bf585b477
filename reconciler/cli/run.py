"""`xgen-model run`: the agent."""

import os
import socket
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from reconciler import log
from reconciler.cli.allowed import AllowedFiles, AllowedFlags, AllowedVariables, permissions
from reconciler.cli.bare_imports import import_aiohttp
from reconciler.cli.cluster_option import (
    CLUSTER_DEFAULTS,
    ClusterOptions,
    peering_of,
    pod_ip,
    pod_name,
)
from reconciler.cli.engine_option import EngineOption, named_engines
from reconciler.cli.exits import ExitCode
from reconciler.cli.garbage import collect_nothing_yet
from reconciler.cli.git_option import GIT_DEFAULTS, GitOptions, GitWebhookSecretFile
from reconciler.cli.kubernetes_option import Kubeconfig, KubeContext, kubernetes_access
from reconciler.cli.node_name import check_default, node_name
from reconciler.cli.option_group import with_groups
from reconciler.cli.options import (
    DataDir,
    GpuModeOption,
    cache_budget,
    data_dir,
    hub_location,
    hub_settings,
    listen_address,
    port_range,
    stop_limit_of_option,
)
from reconciler.cli.supervise import await_turn, become_supervisor
from reconciler.node.service_manager import ServiceManager, watched_pid
from reconciler.plan.ending import OnExit
from reconciler.plan.gpu_mode import GpuMode
from reconciler.settings import Settings


@with_groups
def run(
    manifest: Annotated[
        str,
        typer.Option(
            envvar="XGEN_MANIFEST",
            help="A manifest file, or a directory of them (a mount, a link), or a git repository: "
            "git+https://HOST/REPOSITORY.git?ref=BRANCH&path=FOLDER, git+ssh://…, or a ConfigMap "
            "asked for at the Kubernetes API: configmap://NAMESPACE/NAME",
        ),
    ],
    hub: Annotated[
        str | None,
        typer.Option(
            envvar="XGEN_HUB",
            help="Where model files come from: s3://BUCKET (with MINIO_ENDPOINT, MINIO_ACCESS_KEY, "
            "MINIO_SECRET_KEY, or the AWS_* ones) or a directory.",
        ),
    ] = None,
    hub_rate_limit: Annotated[
        float | None,
        typer.Option(
            envvar="XGEN_HUB_RATE_LIMIT",
            metavar="MIB",
            min=0.1,
            help="MiB a second that all downloads take from the hub together. [default: no limit]",
        ),
    ] = None,
    node: Annotated[
        str | None,
        typer.Option(
            envvar=["XGEN_NODE", "NODE_NAME"],
            help="This node's name in the manifest. [default: the remembered one, else the host's]",
        ),
    ] = None,
    listen: Annotated[
        str, typer.Option(envvar="XGEN_LISTEN", help="HOST:PORT of the HTTP side.")
    ] = "127.0.0.1:8000",
    data: DataDir = None,
    models_dir: Annotated[
        Path | None,
        typer.Option(envvar="XGEN_MODELS_DIR", help="Model files. [default: DATA_DIR/models]"),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            "--cache-budget",
            envvar="XGEN_CACHE_BUDGET",
            metavar="SIZE",
            help="Most that model files may take: 200GiB, 500GB, or 80% of the disk. Downloads "
            "evict what no model needs. [default: the disk]",
        ),
    ] = None,
    llama_server: Annotated[
        str | None,
        typer.Option(
            envvar="XGEN_LLAMA_SERVER", help="A llama-server binary. [default: the one on PATH]"
        ),
    ] = None,
    vllm: Annotated[
        str | None,
        typer.Option(
            envvar="XGEN_VLLM",
            metavar="PATH",
            help="A vllm command, or the python that has vLLM. [default: the one on PATH]",
        ),
    ] = None,
    llama_cpp_python: Annotated[
        str | None,
        typer.Option(
            envvar="XGEN_LLAMA_CPP_PYTHON",
            metavar="PYTHON",
            help="The python that has llama-cpp-python[server]. [default: the one on PATH]",
        ),
    ] = None,
    engine: EngineOption = None,
    gpu_mode: GpuModeOption = GpuMode.NODE,
    allow_engine_arg: AllowedFlags = None,
    allow_engine_env: AllowedVariables = None,
    allow_file_root: AllowedFiles = None,
    poll_interval: Annotated[
        float,
        typer.Option(
            envvar="XGEN_POLL_INTERVAL",
            min=0.1,
            help="Seconds between reads of the manifest, beside file events.",
        ),
    ] = 5.0,
    git: GitOptions = GIT_DEFAULTS,
    git_interval: Annotated[
        float,
        typer.Option(
            envvar="XGEN_GIT_INTERVAL",
            min=0.1,
            help="Seconds between looks at a git repository, give or take a tenth.",
        ),
    ] = 30.0,
    git_webhook_secret_file: GitWebhookSecretFile = None,
    kubeconfig: Kubeconfig = None,
    kube_context: KubeContext = None,
    cluster: ClusterOptions = CLUSTER_DEFAULTS,
    max_parallel_loads: Annotated[
        int,
        typer.Option(envvar="XGEN_MAX_PARALLEL_LOADS", min=1, help="Backends that load at a time."),
    ] = 2,
    stop_limit: Annotated[
        str,
        typer.Option(
            envvar="XGEN_STOP_LIMIT",
            metavar="LIMIT",
            help="How many running models one revision may stop unconfirmed: a share (where "
            "four or more run), a number, or none.",
        ),
    ] = "50%",
    ports: Annotated[
        str, typer.Option(envvar="XGEN_PORTS", help="Ports for backends, on 127.0.0.1.")
    ] = "18000-18999",
    log_max_mib: Annotated[
        int,
        typer.Option(
            envvar="XGEN_LOG_MAX_MIB", min=1, help="Size at which a backend's log is rotated."
        ),
    ] = 50,
    max_body_mib: Annotated[
        int,
        typer.Option(
            envvar="XGEN_MAX_BODY_MIB",
            min=1,
            help="Largest body of an inference request; not forms.",
        ),
    ] = 64,
    queue_length: Annotated[
        int,
        typer.Option(
            envvar="XGEN_QUEUE_LENGTH",
            min=0,
            help="Requests that may wait for a model with max_in_flight.",
        ),
    ] = 100,
    queue_seconds: Annotated[
        float, typer.Option(envvar="XGEN_QUEUE_SECONDS", min=0.0, help="How long they wait.")
    ] = 30.0,
    heartbeat_seconds: Annotated[
        float,
        typer.Option(
            envvar="XGEN_HEARTBEAT_SECONDS",
            min=0.1,
            help="Silence in a stream after which a comment keeps it open.",
        ),
    ] = 15.0,
    rename_node: Annotated[
        str | None,
        typer.Option(
            envvar="XGEN_RENAME_NODE", help="The old name, where this node was renamed on purpose."
        ),
    ] = None,
    on_exit: Annotated[
        OnExit,
        typer.Option(
            envvar="XGEN_ON_EXIT",
            help="Backends when the agent is told to end: stop them, or leave them running for "
            "the next agent; auto: stop them, but for what is suspended.",
        ),
    ] = OnExit.AUTO,
    supervise: Annotated[
        bool,
        typer.Option(
            "--supervise",
            envvar="XGEN_SUPERVISE",
            help="Run the agent as a child that is started anew when it crashes, and reap "
            "orphans: for process 1 of a container.",
        ),
    ] = False,
    log_format: Annotated[
        log.LogFormat, typer.Option(envvar="XGEN_LOG_FORMAT", help="Form of the agent's log.")
    ] = "auto",
    log_level: Annotated[
        log.LogLevel, typer.Option(envvar="XGEN_LOG_LEVEL", help="What the agent logs.")
    ] = "info",
) -> int:
    """Make the manifest true on this node and serve its models, until SIGTERM or Ctrl-C."""
    turn = await_turn(os.environ, _import_agent)
    if turn is None:
        return ExitCode.OK
    becomes_supervisor = supervise and turn.supervisor is None
    manager = None  # the agent that the supervisor starts speaks to it
    if not becomes_supervisor:
        watched = watched_pid(supervised=turn.supervisor is not None)
        manager = ServiceManager.taken_from(os.environ, watched=watched)
    host, port = listen_address(listen)
    folder = data_dir(data)
    chosen, host_name = node_name(node), socket.gethostname()
    if chosen is None:
        check_default(folder, host_name)
    log.configure(form=log_format, level=log_level)
    settings = Settings(
        manifest=manifest,
        hub=replace(
            hub_settings(hub_location(hub) if hub else None),
            bytes_per_second=None if hub_rate_limit is None else hub_rate_limit * 1024 * 1024,
        ),
        node=chosen,
        host_name=host_name,
        listen_host=host,
        listen_port=port,
        data_dir=folder,
        models_dir=(models_dir or folder / "models").absolute(),
        cache_budget=cache_budget(budget),
        llama_server=llama_server,
        vllm=vllm,
        llama_cpp_python=llama_cpp_python,
        engines=named_engines(engine),
        gpu_mode=gpu_mode,
        permissions=permissions(allow_engine_arg, allow_engine_env, allow_file_root),
        poll_interval=poll_interval,
        git=git.access(manifest),
        git_interval=git_interval,
        git_webhook_secret_file=git_webhook_secret_file,
        kubernetes=kubernetes_access(manifest, kubeconfig, kube_context),
        max_parallel_loads=max_parallel_loads,
        stop_limit=stop_limit_of_option(stop_limit),
        ports=port_range(ports),
        log_max_bytes=log_max_mib * 1024 * 1024,
        max_body_bytes=max_body_mib * 1024 * 1024,
        queue_length=queue_length,
        queue_seconds=queue_seconds,
        heartbeat_seconds=heartbeat_seconds,
        on_exit=on_exit,
        supervision=turn.supervision,
        rename_node=rename_node,
        peers=peering_of(cluster.peers),
        cluster_token_file=cluster.token_file,
        pod_name=pod_name(),
        pod_ip=pod_ip(),
        environment=dict(os.environ),
    )
    if becomes_supervisor:
        console = log.is_console(log_format, sys.stderr)
        become_supervisor(console=console, level=log_level, on_exit=on_exit)
    _import_agent()
    # Here, since a supervisor needs nothing of the agent, and is to be there soon.
    from reconciler.cli.agent_process import run_until_signalled

    return run_until_signalled(settings, supervisor=turn.supervisor, manager=manager)


def _import_agent() -> None:
    """All that it needs before its first answer."""
    collect_nothing_yet()
    import_aiohttp()
    import_module("reconciler.cli.agent_process")
