"""A small pure world for the planner: orders begin effects, and events end them, well or badly.

It keeps the books as the loop does: failures are stored for the desired instance only.
"""

from dataclasses import dataclass, field, replace

from reconciler.plan.actions import (
    AbortFetch,
    Action,
    FetchFiles,
    KeepBackend,
    Plan,
    StartBackend,
    StopBackend,
    StopLeftover,
)
from reconciler.plan.desired import (
    Desired,
    DesiredModel,
    Format,
    ModelSpec,
    Strategy,
    Timeouts,
)
from reconciler.plan.ids import (
    FilesDigest,
    GpuUuid,
    Instance,
    ModelName,
    NodeName,
    Nonce,
    Place,
    SpecHash,
)
from reconciler.plan.maintenance import Maintenance
from reconciler.plan.observed import (
    EffectKind,
    Failure,
    FilesCached,
    FilesMissing,
    Hang,
    InFlight,
    Leftover,
    Observed,
    ObservedModel,
    ObservedProcess,
)
from reconciler.plan.planner import plan
from reconciler.plan.retry import after_failure, next_attempt_at
from reconciler.plan.suspension import Suspension

Content = tuple[ModelName, SpecHash]


def desired_model(
    name: str,
    version: int = 1,
    *,
    enabled: bool = True,
    priority: int = 0,
    gpus: tuple[str, ...] = (),
    strategy: Strategy = Strategy.AUTO,
) -> DesiredModel:
    return DesiredModel(
        name=ModelName(name),
        spec=ModelSpec(source=f"gguf/{name}"),
        spec_hash=SpecHash(":".join(("1", f"v{version}", *gpus))),
        place=Place(file="models.yaml", line=1, column=1),
        enabled=enabled,
        priority=priority,
        strategy=strategy,
        timeouts=Timeouts(ready=60.0),
        gpus=tuple(GpuUuid(gpu) for gpu in gpus),
    )


@dataclass(slots=True)
class World:
    now: float = 1000.0
    manifest: dict[ModelName, DesiredModel] | None = None
    suspend: bool = False
    suspensions: tuple[Suspension, ...] = ()
    maintenance: Maintenance | None = None
    processes_read: bool = False
    max_parallel_loads: int = 2
    cached: dict[Content, FilesDigest] = field(default_factory=dict)
    refused: set[Content] = field(default_factory=set)
    processes: dict[ModelName, list[ObservedProcess]] = field(default_factory=dict)
    under_way: dict[ModelName, tuple[InFlight, Action]] = field(default_factory=dict)
    failures: dict[ModelName, Failure] = field(default_factory=dict)
    leftovers: list[Leftover] = field(default_factory=list)
    spawned: int = 0

    def desired(self) -> Desired | None:
        if self.manifest is None:
            return None
        models = tuple(self.manifest[name] for name in sorted(self.manifest))
        return Desired(
            node=NodeName("node"),
            revision="r",
            models=models,
            suspend=self.suspend,
            suspensions=self.suspensions,
        )

    def observed(self) -> Observed:
        names = {*(self.manifest or {}), *self.processes, *self.under_way}
        return Observed(
            processes_read=self.processes_read,
            models={name: self._model(name) for name in sorted(names)},
            leftovers=tuple(self.leftovers),
            max_parallel_loads=self.max_parallel_loads,
            maintenance=self.maintenance,
        )

    def _model(self, name: ModelName) -> ObservedModel:
        wanted = (self.manifest or {}).get(name)
        digest = wanted and self.cached.get((name, wanted.spec_hash))
        refused = wanted and (name, wanted.spec_hash) in self.refused
        return ObservedModel(
            name=name,
            processes=tuple(self.processes.get(name, ())),
            files=FilesCached(digest=digest, path="/m/x", root="/m", format=Format.GGUF)
            if digest
            else FilesMissing(),
            refusal="nothing here can run it" if refused else None,
            in_flight=self.under_way[name][0] if name in self.under_way else None,
            failure=self.failures.get(name),
        )

    def plan(self) -> Plan:
        return plan(self.desired(), self.observed(), self.now)

    def wanted_instance(self, name: ModelName) -> Instance | None:
        model = (self.manifest or {}).get(name)
        if model is None or not model.enabled or (name, model.spec_hash) not in self.cached:
            return None
        digest = self.cached[name, model.spec_hash]
        return Instance(spec_hash=model.spec_hash, files_digest=digest)

    def process(self, name: ModelName, nonce: Nonce) -> ObservedProcess:
        return next(each for each in self.processes[name] if each.nonce == nonce)

    def loading(self) -> set[ModelName]:
        return {
            name
            for name, processes in self.processes.items()
            if any(process.loaded_at is None for process in processes)
        } | {
            name for name, (effect, _) in self.under_way.items() if effect.kind is EffectKind.START
        }

    def begin(self, action: Action) -> None:
        """Dispatch: the effect is under way from now on."""
        name = action.model
        if isinstance(action, AbortFetch | KeepBackend):
            effect, begun = self.under_way[name]
            self.under_way[name] = (replace(effect, aborting=True, revocable=False), begun)
            return
        assert name not in self.under_way, f"a second effect on {name}: {action}"
        self.under_way[name] = (self._effect(action), action)

    def _effect(self, action: FetchFiles | StartBackend | StopBackend | StopLeftover) -> InFlight:
        match action:
            case FetchFiles():
                return InFlight(kind=EffectKind.FETCH, spec_hash=action.spec_hash, since=self.now)
            case StartBackend():
                return InFlight(
                    kind=EffectKind.START,
                    spec_hash=action.instance.spec_hash,
                    since=self.now,
                    gpus=action.gpus,
                )
            case StopBackend() | StopLeftover():
                return InFlight(
                    kind=EffectKind.STOP,
                    spec_hash=SpecHash(""),
                    since=self.now,
                    detail=action.cause if isinstance(action, StopBackend) else "",
                    nonce=action.nonce,
                    revocable=isinstance(action, StopBackend) and action.revocable,
                )

    def first_signal(self, name: ModelName) -> None:
        """The drain of a stop is over."""
        effect, action = self.under_way[name]
        self.under_way[name] = (replace(effect, revocable=False), action)

    def end(self, name: ModelName, *, well: bool, permanently: bool = False) -> None:
        """The effect under way reports back."""
        effect, action = self.under_way.pop(name)
        match action:
            case StopBackend() if effect.aborting:
                pass
            case FetchFiles() if well:
                self.cached[name, action.spec_hash] = FilesDigest("f1")
            case FetchFiles() if not effect.aborting:
                self._fail(name, action.spec_hash, None, "fetch", permanently=permanently)
            case StartBackend() if well:
                self.spawn(name, action)
            case StartBackend():
                instance = action.instance
                self._fail(
                    name,
                    instance.spec_hash,
                    instance.files_digest,
                    "start",
                    permanently=permanently,
                )
            case StopLeftover() if well:
                self.leftovers = [each for each in self.leftovers if each.nonce != action.nonce]
            case StopBackend() if well:
                self._stopped(name, action)
            case StopBackend() | StopLeftover():
                self._fail(name, effect.spec_hash, None, "stop")
            case _:
                pass

    def _stopped(self, name: ModelName, action: StopBackend) -> None:
        for process in self.processes.get(name, ()):
            if process.nonce == action.nonce:
                self._remove(name, process)
                if action.ran_seconds is not None:
                    self._fail_process(name, process, "run", loaded_seconds=action.ran_seconds)
                elif action.failure is not None:
                    self._fail_process(name, process, "load", loaded_seconds=None)

    def finish_well(self) -> None:
        """Every effect under way succeeds, and every load."""
        for name in sorted(self.under_way):
            self.end(name, well=True)
        for name, processes in sorted(self.processes.items()):
            for process in [each for each in processes if each.died]:
                self.crash(name, process)
        for name in sorted(self.loading()):
            self.load(name)

    def spawn(self, name: ModelName, action: StartBackend) -> None:
        self.spawned += 1
        process = ObservedProcess(
            nonce=Nonce(f"n{self.spawned}"),
            pid=self.spawned,
            instance=action.instance,
            started_at=self.now,
            gpus=action.gpus,
        )
        self.processes.setdefault(name, []).append(process)

    def load(self, name: ModelName) -> None:
        """The processes of this model that load answer for the first time."""
        self.processes[name] = [
            process
            if process.loaded_at is not None or process.died
            else replace(process, loaded_at=self.now)
            for process in self.processes[name]
        ]

    def hang(self, name: ModelName, hung: Hang | None) -> None:
        """The loaded processes of this model do nothing from now on, or work again."""
        self.processes[name] = [
            process if process.loaded_at is None or process.died else replace(process, hung=hung)
            for process in self.processes[name]
        ]

    def mend_files(self, name: ModelName) -> None:
        """What lives of this model reads files that have gone, and are here again."""
        self.processes[name] = [
            replace(process, reads_removed_files=True) for process in self.processes[name]
        ]

    def die(self, name: ModelName, process: ObservedProcess) -> None:
        """Its first process; the exit is told later, by `crash`."""
        self.processes[name] = [
            replace(each, died=True) if each is process else each for each in self.processes[name]
        ]

    def dying(self) -> bool:
        return any(each.died for processes in self.processes.values() for each in processes)

    def crash(self, name: ModelName, process: ObservedProcess) -> None:
        self._remove(name, process)
        effect = self.under_way.get(name)
        if effect is None or effect[0].aborting or effect[0].nonce != process.nonce:
            loaded_at = process.loaded_at
            self._fail_process(
                name,
                process,
                "load" if loaded_at is None else "run",
                loaded_seconds=None if loaded_at is None else self.now - loaded_at,
            )

    def _remove(self, name: ModelName, process: ObservedProcess) -> None:
        self.processes[name].remove(process)
        if not self.processes[name]:
            del self.processes[name]

    def _fail_process(
        self,
        name: ModelName,
        process: ObservedProcess,
        during: str,
        *,
        loaded_seconds: float | None,
    ) -> None:
        self._fail(
            name,
            process.instance.spec_hash,
            process.instance.files_digest,
            during,
            loaded_seconds=loaded_seconds,
        )

    def _fail(
        self,
        name: ModelName,
        spec_hash: SpecHash,
        files_digest: FilesDigest | None,
        during: str,
        *,
        permanently: bool = False,
        loaded_seconds: float | None = None,
    ) -> None:
        model = (self.manifest or {}).get(name)
        if during != "stop" and (model is None or model.spec_hash != spec_hash):
            return
        self.failures[name] = after_failure(
            self.failures.get(name),
            spec_hash=spec_hash,
            files_digest=files_digest,
            at=self.now,
            reason=f"failed during {during}",
            during=during,
            permanent=permanently,
            loaded_seconds=loaded_seconds,
        )

    def failed_for_good(self, model: DesiredModel) -> bool:
        """Whether its failure is not tried again; it must be one of what is wanted."""
        failure = self.failures.get(model.name)
        assert failure is not None
        digest = self.cached.get((model.name, model.spec_hash))
        assert failure.spec_hash == model.spec_hash
        assert failure.files_digest in (None, digest)
        assert (failure.during == "fetch") == (digest is None)
        return next_attempt_at(failure, key=model.name) is None

    def devices_in_use(self) -> set[GpuUuid]:
        processes = [each for many in self.processes.values() for each in many]
        held = [each.gpus for each in processes]
        held += [effect.gpus for effect, _ in self.under_way.values()]
        return {gpu for gpus in held for gpu in gpus}
