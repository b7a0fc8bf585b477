"""What a spawn leaves beside its processes, under names that are its own: folders and a group."""

from reconciler.apply import cgroup, scratch
from reconciler.apply.records import SpawnRecord
from reconciler.observe.processes import boot_id, pid_namespace


def remove_traces(record: SpawnRecord) -> str | None:
    """Once nobody of it lives. Returns why it cannot be, as a sentence; None: there are none."""
    problem = scratch.remove(record.nonce, record.scratch)
    group = cgroup.recorded(record.nonce, record.cgroup)
    # One of another boot, or of a container that is gone, went with that.
    here = (record.boot_id, record.pid_namespace) == (boot_id(), pid_namespace())
    return problem or (cgroup.remove(group) if group is not None and here else None)
