"""What a record keeps of a start, and what the next agent takes a backend over by (R9)."""

from pathlib import Path

import msgspec

from reconciler.apply.held import BackendView
from reconciler.apply.kept_spec import decode_spec
from reconciler.apply.kin import Kin
from reconciler.apply.records import NOTHING, SpawnRecord
from reconciler.backend.inventory import Build
from reconciler.backend.launch import Counters, Launch, Probe
from reconciler.observe.processes import Process, age_seconds
from reconciler.plan.checks import Check
from reconciler.plan.ids import Instance
from reconciler.plan.observed import Adoption, Leftover
from reconciler.plan.spec_hash import VERSION, spec_hash


class _Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A `Launch`, but for what stands in the record itself, and for its variables: some are secret,
    and none is needed again."""

    probe: Probe
    counters: Counters
    warnings: tuple[str, ...] = ()
    checks: tuple[Check, ...] = ()
    gpu_share: float | None = None
    build: Build | None = None


def keep(launch: Launch) -> msgspec.Raw:
    """Without the flags that the build takes: hundreds, for the next start only."""
    kept = msgspec.to_builtins(
        _Kept(
            probe=launch.probe,
            counters=launch.counters,
            warnings=launch.warnings,
            checks=launch.checks,
            gpu_share=launch.gpu_share,
            build=launch.build,
        )
    )
    if launch.build is not None:
        del kept["build"]["flags"]
    return msgspec.Raw(msgspec.json.encode(kept))


def adopt(kin: Kin, now: float) -> BackendView | Leftover:
    """How an agent goes on with what an earlier one has started, and nobody has asked yet; its
    launch has no variables, and its `argv` is for showing only. Or that it cannot.

    `kin`: looked at, and somebody of it lives. `now`: on the agent's clock. Reads /proc.
    """
    record = kin.record
    process = next((each for each in kin.alive if each.pid == record.pid), None)
    if kin.leader is None or process is None:
        return without_leader(kin)
    if record.stopping:
        return _left(kin, process, "an agent before this one had begun to stop it")
    if record.launch == NOTHING:
        return _left(kin, process, "the release that started it did not note how it is asked")
    try:
        kept = msgspec.json.decode(record.launch, type=_Kept)
    except msgspec.MsgspecError as exc:
        return _left(kin, process, f"its record does not say how it is asked: {exc}")
    try:
        instance = _instance(record)
    except msgspec.MsgspecError as exc:
        why = f"its spec was hashed by another release, and its record does not hold it: {exc}"
        return _left(kin, process, why)
    return BackendView(
        model=record.model,
        nonce=record.nonce,
        pid=process.pid,
        instance=instance,
        launch=Launch(
            backend=record.backend,
            argv=record.argv,
            env={},
            host=record.host,
            port=record.port,
            api_key=record.api_key,
            probe=kept.probe,
            counters=kept.counters,
            warnings=kept.warnings,
            checks=kept.checks,
            gpu_share=kept.gpu_share,
            build=kept.build,
        ),
        gpus=record.gpus,
        started_at=now - age_seconds(process),
        loaded_at=None,
        log_path=Path(record.log),
        stopping=False,
        adopted=Adoption(at=now, was_loaded=record.loaded),
        launch_hash=record.launch_hash,
    )


def without_leader(kin: Kin) -> Leftover:
    """Who of it lives on. `kin`: as for `adopt`."""
    pid = kin.record.pid
    gone = "" if pid is None else f", pid {pid},"
    return _left(kin, kin.alive[0], f"the first process of its backend{gone} is gone")


def known_late(kin: Kin) -> Leftover:
    """One that could not be told for ours when this agent started: its model may have been started
    anew since. `kin`: as for `adopt`."""
    return _left(kin, kin.alive[0], "whose it is could not be told when this agent started")


def _left(kin: Kin, process: Process, why: str) -> Leftover:
    record = kin.record
    return Leftover(
        nonce=record.nonce, model=record.model, pid=process.pid, why=why, gpus=record.gpus
    )


def _instance(record: SpawnRecord) -> Instance:
    """As this release hashes it, so that an upgrade restarts nothing (R4)."""
    if record.spec_hash.startswith(f"{VERSION}:"):
        return record.instance
    return Instance(spec_hash=spec_hash(decode_spec(record.spec)), files_digest=record.files_digest)
