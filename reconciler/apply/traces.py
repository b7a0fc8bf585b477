"""What a spawn leaves beside its processes: folders and a group under names that are its own, and
shared memory."""

from reconciler.apply import cgroup, scratch, shared_memory
from reconciler.apply.records import SpawnRecord
from reconciler.observe.processes import boot_id, pid_namespace


def remove_traces(record: SpawnRecord) -> str | None:
    """Once nobody of it lives. Returns why it cannot be, as a sentence; None: there are none."""
    problem = scratch.remove(record.nonce, record.scratch)
    group = cgroup.recorded(record.nonce, record.cgroup)
    # One of another boot, or of a container that is gone, went with that.
    here = (record.boot_id, record.pid_namespace) == (boot_id(), pid_namespace())
    if here:  # most often its end has done so
        shared_memory.remove_unused(record.shared_memory)
    return problem or (cgroup.remove(group) if group is not None and here else None)
