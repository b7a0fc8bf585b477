"""Who runs below the supervisor of `run --supervise`, by /proc alone."""

from reconciler.cli.supervisor import VARIABLE
from reconciler.observe.processes import environment_value, read_processes


def agent_below(supervisor: int) -> int | None:
    """None: none runs just now. Orphans that came to the supervisor are not told what it is."""
    for process in read_processes().values():
        leads = process.parent == supervisor and process.pid == process.session
        if leads and process.alive and environment_value(process.pid, VARIABLE) is not None:
            return process.pid
    return None
