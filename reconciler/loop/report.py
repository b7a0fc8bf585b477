"""From a plan and what is there to the status that is published (PURE)."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from reconciler.apply.backends import BackendView
from reconciler.apply.pushes import Noticed
from reconciler.apply.speed import told
from reconciler.backend.choice import Choice
from reconciler.backend.inventory import Inventory
from reconciler.loop.engine_report import engine_of, reason_of, with_drift
from reconciler.masking import is_secret_name, masked_argv
from reconciler.plan.actions import Outlook, Plan, Target
from reconciler.plan.desired import Affinity, DesiredModel
from reconciler.plan.durations import UNTIMED, Durations, expected_load
from reconciler.plan.gpu_roll import Roll
from reconciler.plan.ids import ModelName, Nonce
from reconciler.plan.observed import Failure, FilesCached, InFlight
from reconciler.plan.phase import State
from reconciler.status import (
    Device,
    DrainingStatus,
    Endpoint,
    FailureNote,
    ModelDetail,
    ModelStatus,
    NewerPush,
    Planned,
    Progress,
    TargetStatus,
    UnderWay,
)

Wall = Callable[[float], str]
"""Turns a moment of the plan's clock into RFC 3339, UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What the loop knows of one model beside its outlook.

    `desired` is None for one that only still runs; `choice`: the backend that would be started.
    `files`: what is cached of it. `effect`: what is under way for it.
    `past`: how long it has taken here.
    `drifts`: of processes that an earlier agent has started, as clauses.
    """

    desired: DesiredModel | None
    views: tuple[BackendView, ...] = ()
    effect: InFlight | None = None
    choice: Choice | None = None
    restarts: int = 0
    restart_causes: tuple[tuple[str, int], ...] = ()
    failure: Failure | None = None
    recent_failures: tuple[Failure, ...] = ()
    last_lines: tuple[str, ...] = ()
    progress: Progress | None = None
    files: FilesCached | None = None
    noticed: Noticed | None = None
    degraded: str | None = None
    past: Durations = UNTIMED
    drifts: Mapping[Nonce, str] = field(default_factory=dict)

    @property
    def stopping(self) -> Nonce | None:
        """The process whose stop is under way, and is not taken back."""
        effect = self.effect
        return effect.nonce if effect is not None and not effect.aborting else None

    @property
    def failures_in_a_row(self) -> int:
        return self.failure.count if self.failure else 0

    @property
    def known(self) -> bool:
        """Whether there is a spec or a process to speak of."""
        return self.desired is not None or bool(self.views)


def model_status(
    outlook: Outlook, facts: ModelFacts, inventory: Inventory, *, wall: Wall
) -> ModelStatus:
    """One model's entry."""
    view = _speaking_for(facts.views, outlook.process)
    coming = next((each for each in facts.views if each.nonce == outlook.coming), None)
    desired = facts.desired
    spec_hash = view.instance.spec_hash if view else (desired.spec_hash if desired else None)
    target = outlook.target
    files = _files_of(view, facts.files)
    running = view.launch.build if view else None
    return ModelStatus(
        name=outlook.model,
        type=view.launch.probe.type if view else _desired(outlook, facts).spec.type,
        state=outlook.state,
        reason=_reason(outlook, view),
        aliases=desired.aliases if desired else (),
        backend=view.launch.backend if view else (facts.choice.build.id if facts.choice else None),
        backend_reason=reason_of(running, facts.choice),
        engine=with_drift(
            engine_of(running, facts.choice, inventory),
            facts.drifts.get(view.nonce) if view else None,
        ),
        gpu_ids=tuple(view.gpus) if view else (),
        spec_hash=spec_hash,
        digest=files.digest if files else view.instance.files_digest if view else None,
        revision=files.revision if files else None,
        verified=files.verified if files and files.revision is not None else None,
        newer=_newer(facts.noticed),
        pid=view.pid if view else outlook.left_pid,
        port=view.launch.port if view else None,
        restarts=facts.restarts,
        target=_target(target, coming) if target else None,
        draining=tuple(_draining(outlook, facts, wall)),
        degraded=facts.degraded,
        endpoint=_endpoint(view, facts, outlook),
        max_in_flight=desired.max_in_flight if desired else None,
        affinity=desired.affinity if desired else Affinity.NONE,
        last_lines=facts.last_lines if _is_in_trouble(outlook) else (),
        log=str(view.log_path) if view else None,
        progress=facts.progress or (facts.noticed.progress if facts.noticed else None),
        retry_at=wall(outlook.retry_at) if outlook.retry_at is not None else None,
        detail=replace(
            _detail(view, facts, wall), needs=outlook.needs, download_bytes=outlook.download_bytes
        ),
    )


def devices_of(roll: Roll) -> tuple[Device, ...]:
    """Those that have a number."""
    return tuple(
        Device(
            index=gpu.index,
            identity=gpu.identity,
            uuid=gpu.uuid,
            pci=gpu.pci,
            name=gpu.name,
            vendor=gpu.vendor,
            gpu_class=gpu.gpu_class,
            architecture=gpu.architecture,
            memory_total_bytes=gpu.memory_total_bytes,
            memory_used_bytes=gpu.memory_used_bytes,
            memory_free_bytes=gpu.memory_free_bytes,
            utilization=gpu.utilization,
            problem=gpu.unusable,
        )
        for gpu in roll.devices
        if gpu.index is not None
    )


def planned(
    made: Plan,
    in_flight: Mapping[ModelName, InFlight],
    *,
    revision: str | None,
    waits: tuple[str, ...],
    now: float,
    wall: Wall,
) -> Planned:
    """The plan of one tick, for showing."""
    return Planned(
        at=wall(now),
        revision=revision,
        plan=made,
        waits=waits,
        next_at=wall(made.next_at) if made.next_at is not None else None,
        under_way=tuple(
            UnderWay(
                model=model,
                kind=effect.kind,
                since=wall(effect.since),
                detail=effect.detail,
                pid=effect.pid,
            )
            for model, effect in sorted(in_flight.items())
        ),
    )


def settled(model: ModelStatus, facts: ModelFacts) -> bool:
    """Whether this model keeps `/readyz` waiting no more (design §9)."""
    at_rest = model.state in (State.LOADED, State.BLOCKED, State.DISABLED)
    return at_rest or facts.failures_in_a_row >= 3


def _reason(outlook: Outlook, view: BackendView | None) -> str:
    """The plan's reason, and what the process itself still lacks."""
    if view is None or outlook.state is State.LOADED:
        return outlook.reason
    return f"{outlook.reason}{_lacks(view, outlook.reason)}"


def _lacks(view: BackendView | None, told: str) -> str:
    """Nothing of what a failure has told already."""
    if view is None or not view.progress or view.progress in told:
        return ""
    return f"; {view.progress}"


def _target(target: Target, coming: BackendView | None) -> TargetStatus:
    return TargetStatus(
        spec_hash=target.spec_hash,
        state=target.state,
        reason=f"{target.reason}{_lacks(coming, target.reason)}",
        pid=coming.pid if coming is not None else None,
    )


def _draining(outlook: Outlook, facts: ModelFacts, wall: Wall) -> Iterator[DrainingStatus]:
    """Those that live still. What the plan has just begun to stop is stopping, too."""
    alive = {view.nonce for view in facts.views}
    for each in outlook.draining:
        since = each.since
        if facts.effect is not None and facts.effect.nonce == each.nonce:
            since = facts.effect.since
        if each.nonce in alive:
            yield DrainingStatus(
                nonce=each.nonce,
                pid=each.pid,
                spec_hash=each.spec_hash,
                reason=each.reason,
                since=wall(since) if since is not None else None,
                loads=each.loads,
            )


def _is_in_trouble(outlook: Outlook) -> bool:
    target = outlook.target
    return (target.state if target is not None else outlook.state) in (State.ERROR, State.BLOCKED)


def _speaking_for(views: tuple[BackendView, ...], planned: Nonce | None) -> BackendView | None:
    """The process whose figures are shown: the plan's; where that has gone meanwhile, or come, the
    one that serves, else the newest."""
    loaded = [view for view in views if view.loaded_at is not None]
    newest = max(loaded or views, key=lambda view: view.started_at, default=None)
    return next((view for view in views if view.nonce == planned), newest)


def _files_of(view: BackendView | None, files: FilesCached | None) -> FilesCached | None:
    """What is cached, unless the process that is shown has other files."""
    if view is None or files is None:
        return files
    digest = view.instance.files_digest
    return files if digest in (files.digest, files.former) else None


def _newer(noticed: Noticed | None) -> NewerPush | None:
    if noticed is None:
        return None
    how_far = f"; {told(noticed.progress)}" if noticed.progress else ""
    digest = noticed.push.revision if noticed.push is not None else None
    return NewerPush(digest=digest, reason=f"{noticed.reason}{how_far}")


def _endpoint(view: BackendView | None, facts: ModelFacts, outlook: Outlook) -> Endpoint | None:
    if view is None or view.loaded_at is None or view.stopping or view.nonce == facts.stopping:
        return None
    if outlook.state is not State.LOADED:
        return None
    launch = view.launch
    return Endpoint(
        nonce=view.nonce,
        host=launch.host,
        port=launch.port,
        api_key=launch.api_key,
        metrics_path=launch.counters.metrics_path,
    )


def _detail(view: BackendView | None, facts: ModelFacts, wall: Wall) -> ModelDetail:
    desired = facts.desired
    loaded_at = view.loaded_at if view else None
    return ModelDetail(
        enabled=desired.enabled if desired else False,
        priority=desired.priority if desired else 0,
        spec=desired.spec if desired else None,
        timeouts=desired.timeouts if desired else None,
        place=desired.place if desired else None,
        passed_over=facts.choice.passed_over if facts.choice else (),
        argv=_shown_argv(view) if view else (),
        warnings=view.launch.warnings if view else (),
        started_at=wall(view.started_at) if view else None,
        loaded_at=wall(loaded_at) if loaded_at is not None else None,
        load_seconds=_load_seconds(view) if view else None,
        expected_load_seconds=_expected_load_seconds(view, facts),
        restart_causes=facts.restart_causes,
        failures_in_a_row=facts.failures_in_a_row,
        permanent=facts.failure.permanent if facts.failure else False,
        failures=tuple(
            FailureNote(at=wall(each.at), during=each.during, reason=each.reason)
            for each in facts.recent_failures
        ),
    )


def _load_seconds(view: BackendView) -> float | None:
    """How long another agent waited for what it loaded is not known."""
    if view.loaded_at is None or view.adopted is not None:
        return None
    return view.loaded_at - view.started_at


def _expected_load_seconds(view: BackendView | None, facts: ModelFacts) -> float | None:
    """Of what would be started now."""
    desired, running = facts.desired, view.launch.backend if view else None
    if desired is None:
        return None
    return expected_load(
        facts.past,
        backend=facts.choice.build.id if facts.choice else running,
        spec=desired.spec,
        spec_hash=desired.spec_hash,
        after_fetch=facts.files is None,
    ).seconds


def _shown_argv(view: BackendView) -> tuple[str, ...]:
    launch = view.launch
    secrets = [value for name, value in launch.env.items() if is_secret_name(name)]
    return masked_argv(launch.argv, [launch.api_key, *secrets])


def _desired(outlook: Outlook, facts: ModelFacts) -> DesiredModel:
    if facts.desired is None:
        raise ValueError(f"{outlook.model} has neither a process nor a spec")
    return facts.desired
