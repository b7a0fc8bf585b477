"""What holds whatever happens: the planner against a world in which anything may happen any time.

Covers the kinds of fault of scenarios 5, 8 (retry), 9, 10, 12, 18 (starts and stops), 40–43.
"""

from dataclasses import replace

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from reconciler.plan.actions import (
    AbortFetch,
    FetchFiles,
    KeepBackend,
    Outlook,
    Plan,
    StartBackend,
    StopBackend,
    StopLeftover,
)
from reconciler.plan.desired import Strategy
from reconciler.plan.ids import FilesDigest, ModelName, Nonce
from reconciler.plan.observed import EffectKind, Hang, Leftover
from reconciler.plan.phase import State, advance
from reconciler.plan.planner import plan
from tests.plan.world import Content, World, desired_model
from tests.plan.world_checks import (
    HOURS,
    check_hung_ones_end,
    check_is_deterministic,
    check_keeps_the_gpu,
    check_kept,
    check_stops_tell_why,
    check_what_may_begin,
    check_windows,
)

NAMES = st.sampled_from([ModelName(name) for name in "abc"])
GPUS = st.sampled_from([(), (), ("g0",), ("g1",), ("g0", "g1")])
STRATEGIES = st.sampled_from([Strategy.AUTO, Strategy.AUTO, Strategy.SURGE, Strategy.RECREATE])
A_DAY = 86_400.0


class PlannerAgainstTheWorld(RuleBasedStateMachine):
    """Rules are events; each tick checks the plan; the end checks that all comes to rest."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.states: dict[ModelName, State] = {}

    @initialize(
        left=st.one_of(st.just([]), st.lists(NAMES, max_size=2)),
        slots=st.integers(1, 2),
        processes_read=st.booleans(),
        models=st.one_of(st.none(), st.dictionaries(NAMES, GPUS)),
    )
    def an_agent_begins(
        self,
        left: list[ModelName],
        slots: int,
        processes_read: bool,
        models: dict[ModelName, tuple[str, ...]] | None,
    ) -> None:
        self.world.max_parallel_loads = slots
        self.world.processes_read = processes_read
        if models is not None:
            self.world.manifest = {
                name: desired_model(name, gpus=gpus) for name, gpus in models.items()
            }
        self.world.leftovers = [
            Leftover(nonce=Nonce(f"old{pid}"), model=name, pid=pid)
            for pid, name in enumerate(left, start=500)
        ]

    @rule()
    def processes_are_read(self) -> None:
        self.world.processes_read = True

    @rule(
        name=NAMES,
        version=st.integers(1, 3),
        enabled=st.sampled_from([True, True, True, False]),
        priority=st.sampled_from([0, 0, 5]),
        gpus=GPUS,
        strategy=STRATEGIES,
    )
    def manifest_has(
        self,
        name: ModelName,
        version: int,
        enabled: bool,
        priority: int,
        gpus: tuple[str, ...],
        strategy: Strategy,
    ) -> None:
        self.world.manifest = self.world.manifest or {}
        self.world.manifest[name] = desired_model(
            name, version, enabled=enabled, priority=priority, gpus=gpus, strategy=strategy
        )

    @rule(name=NAMES)
    def manifest_drops(self, name: ModelName) -> None:
        self.world.manifest = self.world.manifest or {}
        self.world.manifest.pop(name, None)

    @precondition(lambda self: len(self.world.manifest or {}) > 1)
    @rule(data=st.data(), version=st.integers(1, 2))
    def devices_change_hands(self, data: st.DataObject, version: int) -> None:
        manifest = self.world.manifest or {}
        one, other = data.draw(st.permutations(sorted(manifest)))[:2]
        for name, gpus in ((one, manifest[other].gpus), (other, manifest[one].gpus)):
            manifest[name] = desired_model(name, version, gpus=gpus)

    @precondition(lambda self: self.world.manifest)
    @rule(data=st.data(), versions=st.permutations([1, 2, 3]), steps=st.integers(0, 3))
    def something_changes_that_serves(
        self, data: st.DataObject, versions: list[int], steps: int
    ) -> None:
        """As `all_goes_well_for_a_while`, up to the middle of a change: of a surge, that the new
        one starts, loads, and dies."""
        manifest = self.world.manifest or {}
        model = manifest[data.draw(st.sampled_from(sorted(manifest)))]
        for version in versions[:2]:
            self.all_goes_well_for_a_while()
            manifest[model.name] = replace(
                model, spec_hash=desired_model(model.name, version, gpus=model.gpus).spec_hash
            )
        self.tick()
        for name in sorted(self.world.under_way) if steps else ():
            self.world.end(name, well=True)
            self.tick()
        for name in sorted(self.world.processes) if steps > 1 else ():
            self.world.load(name)
            self.tick()
        if steps > 2 and len(processes := self.world.processes.get(model.name, [])) > 1:
            self.world.crash(model.name, processes[-1])
            self.tick()

    @precondition(lambda self: self.world.processes)
    @rule(data=st.data())
    def files_are_mended(self, data: st.DataObject) -> None:
        self.world.mend_files(data.draw(st.sampled_from(sorted(self.world.processes))))

    @rule(on=st.sampled_from([False, False, True]))
    def manifest_suspends(self, on: bool) -> None:
        self.world.suspend = on

    @rule(now=st.sampled_from(sorted(HOURS)))
    def a_window_opens_or_closes(self, now: str) -> None:
        self.world.maintenance = HOURS[now]

    @precondition(lambda self: self.world.manifest)
    @rule(data=st.data(), digest=st.sampled_from(["f1", "f2", ""]))
    def files_change(self, data: st.DataObject, digest: str) -> None:
        content = self.draw_content(data)
        if digest:
            self.world.cached[content] = FilesDigest(digest)
        else:
            self.world.cached.pop(content, None)

    @precondition(lambda self: self.world.manifest)
    @rule(data=st.data())
    def node_refuses_or_takes(self, data: st.DataObject) -> None:
        self.world.refused ^= {self.draw_content(data)}

    def draw_content(self, data: st.DataObject) -> Content:
        manifest = self.world.manifest or {}
        model = manifest[data.draw(st.sampled_from(sorted(manifest)))]
        return (model.name, model.spec_hash)

    @precondition(lambda self: self.world.under_way)
    @rule(data=st.data(), well=st.booleans(), permanently=st.booleans())
    def effect_ends(self, data: st.DataObject, well: bool, permanently: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.under_way)))
        self.world.end(name, well=well, permanently=permanently)

    @precondition(lambda self: self.world.under_way)
    @rule(data=st.data())
    def a_drain_ends(self, data: st.DataObject) -> None:
        self.world.first_signal(data.draw(st.sampled_from(sorted(self.world.under_way))))

    @precondition(lambda self: self.world.processes)
    @rule(data=st.data())
    def backend_loads(self, data: st.DataObject) -> None:
        self.world.load(data.draw(st.sampled_from(sorted(self.world.processes))))

    @precondition(lambda self: self.world.processes)
    @rule(data=st.data())
    def backend_dies(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.processes)))
        self.world.crash(name, data.draw(st.sampled_from(self.world.processes[name])))

    @precondition(lambda self: self.world.processes)
    @rule(data=st.data())
    def the_first_process_of_a_backend_dies(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.processes)))
        self.world.die(name, data.draw(st.sampled_from(self.world.processes[name])))

    @precondition(lambda self: self.world.processes)
    @rule(data=st.data(), recovers=st.sampled_from([False, False, True]))
    def backend_hangs(self, data: st.DataObject, recovers: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.world.processes)))
        self.world.hang(name, None if recovers else Hang(reason="hung", since=self.world.now))

    @rule(seconds=st.sampled_from([0.5, 5.0, 30.0, 400.0, 700.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.now += seconds

    @rule()
    def loop_ticks(self) -> None:
        self.tick()

    @rule()
    def all_goes_well_for_a_while(self) -> None:
        self.tick()
        self.world.finish_well()
        self.tick()

    def tick(self) -> Plan:
        made = self.world.plan()
        check_is_deterministic(self.world, made)
        self.check_actions(made)
        self.check_times(made)
        self.check_states(made)
        for action in made.actions:
            self.world.begin(action)
        assert len(self.world.loading()) <= self.world.max_parallel_loads
        for processes in self.world.processes.values():
            assert len(processes) <= 2
            assert len({each.instance for each in processes}) == len(processes), (
                "two of an instance"
            )
        return made

    def check_actions(self, made: Plan) -> None:
        world = self.world
        names = [action.model for action in made.actions]
        assert len(set(names)) == len(names), "at most one effect for each model"
        check_what_may_begin(world, made)
        taken = self.world.devices_in_use()
        for action in made.actions:
            assert action.reason
            if action.model in world.under_way:
                effect, _ = world.under_way[action.model]
                retracted = AbortFetch if effect.kind is EffectKind.FETCH else KeepBackend
                assert isinstance(action, retracted)
                assert not effect.aborting
                continue
            match action:
                case FetchFiles():
                    assert world.wanted_instance(action.model) is None
                case StartBackend():
                    assert action.instance == world.wanted_instance(action.model)
                    self.check_surge(action)
                    assert not world.leftovers
                    assert not taken & set(action.gpus), "a GPU given twice"
                    taken |= set(action.gpus)
                case StopBackend():
                    self.check_stop(action)
                case _:
                    pass

        check_hung_ones_end(self.world, made)
        check_stops_tell_why(self.world, made)
        check_kept(self.world, made)
        check_windows(self.world, made)
        for name, (effect, _) in world.under_way.items():
            if made.outlook and not world.suspend and effect.kind is EffectKind.FETCH:
                model = (world.manifest or {}).get(name)
                wanted = model is not None and model.enabled and model.spec_hash == effect.spec_hash
                assert wanted or effect.aborting or name in names, "a useless download goes on"

    def check_surge(self, start: StartBackend) -> None:
        """Only beside one that serves another instance, and only where the manifest lets it."""
        for process in self.world.processes.get(start.model, ()):
            assert process.loaded_at is not None
            assert process.hung is None
            assert not process.died
            assert process.instance != start.instance
            model = (self.world.manifest or {})[start.model]
            assert model.strategy is not Strategy.RECREATE

    def check_stop(self, stop: StopBackend) -> None:
        """What serves ends beside another that serves, or for one that finds no room beside it."""
        world = self.world
        process = world.process(stop.model, stop.nonce)
        wanted = world.wanted_instance(stop.model)
        model = (world.manifest or {}).get(stop.model)
        if process.loaded_at is None or model is None or not model.enabled:
            return
        if process.hung is not None:
            assert stop.drain
            return
        if process.instance == wanted:
            assert process.reads_removed_files, "an unchanged model was touched"
            return
        others = [each for each in world.processes[stop.model] if each is not process]
        if any(each.loaded_at is not None and each.hung is None for each in others):
            return  # one load ended just when yet another spec was wanted: the other one serves on
        assert wanted is not None, "stopped before the new files were here"
        assert (stop.model, model.spec_hash) not in world.refused
        assert not others, "a gap while the next one loads"
        in_the_way = bool(set(process.gpus) & set(model.gpus))
        may_stop = {Strategy.RECREATE: True, Strategy.AUTO: in_the_way, Strategy.SURGE: False}
        assert may_stop[model.strategy], "a gap where there was room for both"

    def check_times(self, made: Plan) -> None:
        assert made.next_at is None or made.next_at > self.world.now, "a busy loop"
        acted = {action.model for action in made.actions}
        for outlook in made.outlook:
            if outlook.model in acted:
                continue
            shown = outlook.target.state if outlook.target else outlook.state
            if shown is State.ERROR and not self.world.suspend:
                assert outlook.retry_at or outlook.model in self.world.under_way
            if outlook.retry_at is not None:
                assert made.next_at is not None
                assert self.world.now < made.next_at <= outlook.retry_at

    def check_states(self, made: Plan) -> None:
        before, self.states = self.states, {}
        for outlook in made.outlook:
            assert outlook.reason
            self.states[outlook.model] = advance(before.get(outlook.model), outlook.state)
        if self.world.manifest is not None and self.world.processes_read:
            assert set(self.world.manifest) <= set(self.states)
        for action in made.actions:
            shown = next(each for each in made.outlook if each.model == action.model)
            if isinstance(action, KeepBackend):
                assert (shown.state, shown.process) == (State.LOADED, action.nonce)
            elif isinstance(action, StartBackend) and shown.target is not None:
                assert (shown.state, shown.target.state) == (State.LOADED, State.LOADING)
            elif isinstance(action, StartBackend):
                assert shown.state is State.LOADING
            elif isinstance(action, StopBackend) and action.nonce != shown.process:
                assert shown.state in (State.LOADED, State.LOADING)
            elif isinstance(action, StopBackend | StopLeftover):
                assert shown.state is State.UNLOADING

    def teardown(self) -> None:
        """From now on all goes well: it must come to rest, and then be as desired."""
        world = self.world
        world.processes_read, world.suspend, world.maintenance = True, False, None
        world.manifest = world.manifest or {}
        made = self.tick()
        for _ in range(200):
            busy = world.under_way or world.loading() or world.dying()
            if not busy and made.next_at is None:
                break
            world.finish_well()
            if not world.under_way and not world.plan().actions:
                world.now = max(world.now, world.plan().next_at or 0.0)
            made = self.tick()
        assert not made.actions
        assert plan(world.desired(), world.observed(), world.now + A_DAY) == made
        for outlook in made.outlook:
            self.check_at_rest(outlook)
        targets = [outlook.target for outlook in made.outlook if outlook.target]
        if any(outlook.state is State.PENDING for outlook in made.outlook) or targets:
            assert any(
                target.state is State.BLOCKED or "strategy: surge" in target.reason
                for target in targets
            ), "models wait for each other"
        assert {outlook.model for outlook in made.outlook} == set(world.manifest)
        assert set(world.processes) <= {
            name for name, model in world.manifest.items() if model.enabled
        }
        assert not world.leftovers

    def check_at_rest(self, outlook: Outlook) -> None:
        world = self.world
        name = outlook.model
        model = (world.manifest or {})[name]
        running = [process.instance for process in world.processes.get(name, ())]
        if not model.enabled:
            assert (outlook.state, running) == (State.DISABLED, [])
            return
        wanted = world.wanted_instance(name)
        if outlook.state is State.LOADED and outlook.target is None:
            assert running == [wanted]
            return
        shown = outlook.target or outlook
        if shown.state is State.BLOCKED and "GPU" not in shown.reason:
            assert (name, model.spec_hash) in world.refused or world.failed_for_good(model)
            return
        assert shown.state in (State.PENDING, State.BLOCKED)
        assert "GPU" in shown.reason
        assert model.gpus
        check_keeps_the_gpu(world, shown.reason)


TestPlannerAgainstTheWorld = PlannerAgainstTheWorld.TestCase
TestPlannerAgainstTheWorld.settings = settings(
    max_examples=300,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
