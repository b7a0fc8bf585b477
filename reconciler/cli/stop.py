"""`xgen-model stop`: an agent's end without its life, for the backends that one has left."""

import socket
from pathlib import Path
from typing import Annotated

import typer

from reconciler import log
from reconciler.cli.options import DataDir, data_dir
from reconciler.errors import Rejected
from reconciler.plan.ending import OnExit
from reconciler.settings import Settings

_NO_MANIFEST = "no-manifest"


def stop(
    data: DataDir = None,
    models_dir: Annotated[
        Path | None,
        typer.Option(envvar="XGEN_MODELS_DIR", help="Model files. [default: DATA_DIR/models]"),
    ] = None,
    log_format: Annotated[
        log.LogFormat, typer.Option(envvar="XGEN_LOG_FORMAT", help="Form of the log.")
    ] = "auto",
) -> int:
    """Stop every backend that an agent has left running on this machine (`--on-exit leave`).

    As the user of that agent, and once it has ended: while one runs, its manifest says what runs.
    Exit code 1 if anything survives.
    """
    folder = data_dir(data)
    if not (folder / "version").exists():
        raise Rejected(f"cannot stop what is left: no agent has used {folder}; give its --data-dir")
    log.configure(form=log_format, level="info")
    settings = Settings(
        manifest=str(folder / _NO_MANIFEST),
        host_name=socket.gethostname(),
        listen_port=0,
        data_dir=folder,
        models_dir=(models_dir or folder / "models").absolute(),
        on_exit=OnExit.STOP,
    )
    from reconciler.cli.agent_process import run_until_signalled

    return run_until_signalled(settings, ended_by="the command stop")
