"""One spawn: record, log, process, the record completed. Blocks, so it belongs in a thread."""

import contextlib
import errno
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from reconciler.apply.adoption import keep
from reconciler.apply.cgroup import group_of
from reconciler.apply.execute import execute
from reconciler.apply.kept_spec import encode_spec
from reconciler.apply.launch_drift import launch_hash, shown_argv
from reconciler.apply.logs import open_log, write_header
from reconciler.apply.records import VERSION, Records, SpawnRecord
from reconciler.apply.scratch import Scratch, make, scratch_of
from reconciler.apply.spawn_logs import next_log, prune
from reconciler.apply.traces import remove_traces
from reconciler.atomic_file import cause_and_cure
from reconciler.backend.environment import NONCE_VARIABLE
from reconciler.backend.launch import Launch
from reconciler.errors import Rejected, Transient
from reconciler.observe.processes import boot_id, pid_namespace, read_process, ticks_since_boot
from reconciler.plan.desired import ModelSpec
from reconciler.plan.ids import GpuUuid, Instance, ModelName, Nonce

_HOPELESS = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.EACCES,
        errno.EPERM,
        errno.ENOEXEC,
        errno.EISDIR,
        errno.ELOOP,
        errno.ENAMETOOLONG,
        errno.E2BIG,
    }
)
"""What exec refuses for ever, as long as the command stays the same."""
_TEMPORARY = "TMPDIR"


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be started. `in_use`: the logs of those that live; of the model's others as much
    is kept as `log_max_bytes`."""

    model: ModelName
    nonce: Nonce
    node: str
    instance: Instance
    gpus: tuple[GpuUuid, ...]
    launch: Launch
    logs: Path
    log_max_bytes: int
    spec: ModelSpec
    first_answer_seconds: float
    in_use: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A child of ours; `pidfd` is the caller's to close."""

    record: SpawnRecord
    pid: int
    pidfd: int


def start(order: Order, records: Records) -> Started:
    """Raises Rejected where the command cannot run at all, Transient where it may later: then it
    leaves no log.

    A death of the agent at any point leaves a record from which the next one finds the child.
    """
    prune(order.logs, order.model, order.in_use, order.log_max_bytes)
    path = next_log(order.logs, order.model, order.in_use)
    try:
        order.logs.mkdir(mode=0o700, parents=True, exist_ok=True)
        log = open_log(path)
    except OSError as exc:
        why = cause_and_cure(exc, order.logs)
        raise Transient(f"cannot start {order.model}: log {path}: {why}") from exc
    try:
        return _start(order, records, path, log)
    except BaseException:
        with contextlib.suppress(OSError):
            path.unlink()
        raise
    finally:
        os.close(log)


def _start(order: Order, records: Records, path: Path, log: int) -> Started:
    argv = shown_argv(order.launch, order.spec.env)
    scratch = scratch_of(
        order.nonce,
        order.launch.env.get(_TEMPORARY),
        with_sockets=bool(order.launch.socket_variables),
    )
    try:
        write_header(log, _header(order, argv))
        record = _record(order, argv, scratch, path, log_offset=os.fstat(log).st_size)
        records.write(record)
    except OSError as exc:
        why = cause_and_cure(exc, order.logs)
        raise Transient(f"cannot start {order.model}: log {path}: {why}") from exc
    except Transient as exc:
        raise Transient(f"cannot start {order.model}: {exc}") from exc
    try:
        _make_scratch(order, scratch)
        pid, pidfd = _execute(order, scratch, record.cgroup, log)
    except BaseException:
        if remove_traces(record) is None:  # what cannot be removed is removed by the next agent
            records.remove(order.nonce)
        raise
    process = read_process(pid)
    record = msgspec.structs.replace(
        record, pid=pid, session=pid, start_ticks=process.start_ticks if process else None
    )
    # On a full disk the first record stands, and the nonce in it finds the process.
    with contextlib.suppress(OSError, Transient):
        records.write(record)
        write_header(log, f"{order.model} runs as pid {pid}")
    return Started(record=record, pid=pid, pidfd=pidfd)


def _make_scratch(order: Order, scratch: Scratch) -> None:
    try:
        make(scratch)
    except OSError as exc:
        folders = " and ".join(scratch.folders)
        why = f"cannot make {folders}: {_text(exc)}"
        raise Transient(f"cannot start {order.model}: {why}") from exc


def _execute(order: Order, scratch: Scratch, cgroup: str | None, log: int) -> tuple[int, int]:
    """Pid and pidfd of the new child."""
    launch = order.launch
    sockets = dict.fromkeys(launch.socket_variables, str(scratch.sockets))
    try:
        environment = {
            **launch.env,
            **sockets,
            _TEMPORARY: str(scratch.temporary),
            NONCE_VARIABLE: order.nonce,
        }
        child = execute(launch.argv, environment, log, Path(cgroup) if cgroup else None)
    except ValueError as exc:  # a NUL byte in an argument
        raise Rejected(f"cannot start {order.model}: {launch.argv[0]}: {exc}") from exc
    except OSError as exc:
        kind = Rejected if exc.errno in _HOPELESS else Transient
        raise kind(f"cannot start {order.model}: {launch.argv[0]}: {_text(exc)}") from exc
    try:
        pidfd = os.pidfd_open(child.pid)
    except OSError as exc:  # too many open files, say; nobody could watch it
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        raise Transient(f"cannot start {order.model}: cannot watch it: {_text(exc)}") from exc
    # The child is waited for by its pidfd; the object must not do so, nor warn that nobody does.
    child.returncode = 0
    return child.pid, pidfd


def _record(
    order: Order, argv: Sequence[str], scratch: Scratch, log: Path, *, log_offset: int
) -> SpawnRecord:
    return SpawnRecord(
        version=VERSION,
        nonce=order.nonce,
        node=order.node,
        boot_id=boot_id(),
        pid_namespace=pid_namespace() or "unknown",
        written_ticks=ticks_since_boot(),
        model=order.model,
        spec_hash=order.instance.spec_hash,
        files_digest=order.instance.files_digest,
        gpus=order.gpus,
        backend=order.launch.backend,
        argv=tuple(argv),
        host=order.launch.host,
        port=order.launch.port,
        api_key=order.launch.api_key,
        log=str(log),
        log_offset=log_offset,
        scratch=scratch.folders,
        cgroup=str(group) if (group := group_of(order.nonce)) is not None else None,
        first_answer_seconds=order.first_answer_seconds,
        spec=msgspec.Raw(encode_spec(order.spec)),
        launch=keep(order.launch),
        launch_hash=launch_hash(order.launch, order.spec.env),
    )


def _header(order: Order, argv: Sequence[str]) -> str:
    moment = datetime.now(UTC).isoformat(timespec="seconds")
    spec = order.instance.spec_hash
    return f"{moment} starting {order.model} (spec {spec}, spawn {order.nonce}): {' '.join(argv)}"


def _text(exc: OSError) -> str:
    return (exc.strerror or str(exc)).lower()
