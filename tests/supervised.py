"""Who runs below the supervisor of `run --supervise`, by /proc alone."""

from reconciler.cli.supervisor import VARIABLE
from reconciler.observe.processes import environment_value, read_processes


def agents_below(supervisor: int) -> tuple[int, ...]:
    """The agent, then its spare. Orphans that came to the supervisor are not told what it is."""
    found = (
        (process.start_ticks, process.pid)
        for process in read_processes().values()
        if process.parent == supervisor and process.pid == process.session and process.alive
        if environment_value(process.pid, VARIABLE) is not None
    )
    return tuple(pid for _, pid in sorted(found))
