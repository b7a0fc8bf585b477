"""`xgen-model run` with a clock that jumps: `python -m tests.chaos.jumping_agent FILE …`.

What follows are those flags of `run` that tests/e2e/agent.py gives.
"""

import argparse
import os
import sys
from pathlib import Path

from reconciler import log
from reconciler.cli.agent_process import run_until_signalled
from reconciler.cli.options import hub_settings, listen_address, port_range
from reconciler.cli.supervise import await_turn, become_supervisor
from reconciler.manifest.policy import Permissions
from reconciler.plan.ending import OnExit
from reconciler.plan.ids import NodeName
from reconciler.settings import Settings
from tests.chaos.clock import JumpingClock


def main(clock: str, *words: str) -> int:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    for flag in (
        "manifest",
        "hub",
        "node",
        "listen",
        "ports",
        "llama-server",
        "log-format",
        "on-exit",
    ):
        parser.add_argument(f"--{flag}", required=True)
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--poll-interval", type=float, required=True)
    parser.add_argument("--supervise", action="store_true")
    given = parser.parse_args(words)
    turn = await_turn(os.environ, lambda: None)
    if turn is None:
        return 0
    on_exit = OnExit(given.on_exit)
    if given.supervise and turn.supervisor is None:
        become_supervisor(console=False, level="info", on_exit=on_exit)
    host, port = listen_address(given.listen)
    log.configure(form=given.log_format)
    settings = Settings(
        manifest=given.manifest,
        hub=hub_settings(given.hub),
        node=NodeName(given.node),
        listen_host=host,
        listen_port=port,
        data_dir=given.data_dir,
        models_dir=given.data_dir / "models",
        llama_server=given.llama_server,
        permissions=Permissions(variables=frozenset({"STAND_IN"})),
        poll_interval=given.poll_interval,
        ports=port_range(given.ports),
        on_exit=on_exit,
        supervision=turn.supervision,
        environment=dict(os.environ),
    )
    jumping = JumpingClock(Path(clock))
    return run_until_signalled(settings, clock=jumping, supervisor=turn.supervisor)


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))
