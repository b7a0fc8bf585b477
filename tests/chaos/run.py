"""One run of the chaos: steps drawn from a seed, rests in which all settles, and the end."""

import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tests.chaos import edits, ends, harms, leaks
from tests.chaos.invariants import Invariants
from tests.chaos.settle import differences
from tests.chaos.world import World

Step = Callable[[World, Random], str | None]

STEPS: dict[Step, int] = {
    edits.change_flags: 6,
    edits.change_mode: 5,
    edits.make_bad: 6,
    edits.make_all_good: 5,
    edits.change_digest: 5,
    edits.change_source: 3,
    edits.toggle: 4,
    edits.change_routing: 3,
    edits.rename: 3,
    edits.add: 5,
    edits.remove: 3,
    edits.change_several: 3,
    edits.hurry: 3,
    edits.write_torn: 3,
    edits.spoil: 6,
    edits.clash: 2,
    edits.delete_file: 2,
    edits.create_file: 3,
    harms.kill_agent: 8,
    harms.end_agent: 4,
    harms.kill_supervisor: 3,
    harms.kill_ending_agent: 2,
    harms.freeze_agent: 3,
    harms.kill_leader: 6,
    harms.kill_member: 5,
    harms.kill_tree: 3,
    harms.freeze_leader: 3,
    harms.freeze_member: 2,
    harms.kill_helper: 2,
    harms.harm_hub: 6,
    harms.fill_disk: 4,
    harms.take_manifests_away: 2,
    harms.jump_ahead: 4,
    harms.set_wall: 2,
    harms.copy_nonce: 2,
    harms.doctor_record: 6,
    harms.reuse_pid: 3,
}
"""Each with its weight; one that finds nothing to do is drawn anew."""
LASTING = (
    harms.harm_hub,
    harms.fill_disk,
    harms.take_manifests_away,
    harms.freeze_agent,
    harms.freeze_leader,
    harms.freeze_member,
)
ENDS_THE_AGENT = (
    harms.kill_agent,
    harms.end_agent,
    harms.kill_supervisor,
    harms.kill_ending_agent,
)

_PAUSES_SECONDS = (0.0, 0.05, 0.3, 0.8, 1.5)
_STEPS_BETWEEN_RESTS = 30
_REST_SECONDS = 180.0
"""Until then all must have settled; a machine with other work takes its time."""
_STILL_SECONDS = 1.0
_TOLD_SECONDS = 20.0


@dataclass
class Run:
    """`due`: what is to be done before a later step, by that step's number."""

    world: World
    seed: int
    steps: int
    log: list[str] = field(default_factory=list)
    due: list[tuple[int, Step]] = field(default_factory=list)
    _began: float = field(default_factory=time.monotonic)

    def run(self) -> None:
        world = self.world
        edits.begin(world)
        self.say("start", world.start(Random(self.seed)))
        with Invariants(world) as invariants:
            self.rest(invariants)
            for number in range(self.steps):
                self.step(number, Random(f"{self.seed}/{number}"))
                invariants.check()
                if number % _STEPS_BETWEEN_RESTS == _STEPS_BETWEEN_RESTS - 1:
                    self.rest(invariants)
            self.rest(invariants)
        self.end()
        invariants.check()

    def step(self, number: int, rng: Random) -> None:
        """What is due first. Draws depend on the seed and the number alone, never on time."""
        self.look_after(number)
        for due, late in [each for each in self.due if each[0] <= number]:
            self.due.remove((due, late))
            self.say(number, late(self.world, rng))
        drawn = self.draw(number, rng)
        if drawn in LASTING:
            self.due.append((number + rng.randint(1, 4), _mending(drawn)))
        if drawn in ENDS_THE_AGENT:
            self.due.append((number + rng.choice([0, 1, 1, 2, 4]), _start))
        if (number, _start) in self.due:
            self.due.remove((number, _start))
            self.say(number, _start(self.world, rng))
        time.sleep(rng.choice(_PAUSES_SECONDS))

    def draw(self, number: int, rng: Random) -> Step:
        while True:
            (drawn,) = rng.choices(list(STEPS), weights=list(STEPS.values()))
            if (said := drawn(self.world, rng)) is not None:
                self.say(number, said)
                return drawn

    def look_after(self, number: int) -> None:
        """An agent that ended by itself did so for want of disk, or is broken."""
        self.world.look_for_successor()
        if self.world.started_pid is not None or any(step is _start for _, step in self.due):
            return
        code, log = self.world.agent.exited, self.world.agent.recent_log
        assert self.world.disk.was_full, f"the agent ended by itself, with {code}\n{log}"
        self.say(number, f"the agent ended for want of disk, with {code}")
        self.due.append((number + 1, _start))

    def rest(self, invariants: Invariants) -> None:
        """All is mended, and what is desired comes to run."""
        world = self.world
        for _, late in self.due:
            if late is not _start:
                self.say("rest", late(world, Random()))
        self.due.clear()
        if world.started_pid is None or (world.disk.was_full and not world.comes_up()):
            self.say("rest", world.start(Random(f"{self.seed}/{len(self.log)}")))
        world.wait_up()
        world.wait_taken_up()
        answer = world.agent.post("/api/management/reconcile", {"retry": True})
        assert answer.status_code == 200, answer.text
        self.wait_settled(invariants)
        self.ask_all()
        self.check_faults()
        invariants.check()
        serving = {each.model for each in world.census().backends}
        told = [
            f"{name} ({wish.mode}{', runs' * (name in serving)})"
            for name, wish in sorted(world.desired.wishes.items())
        ]
        self.say("rest", f"settled: {', '.join(told)}")

    def wait_settled(self, invariants: Invariants) -> None:
        """Without a difference and a leak twice in a row."""
        world, told = self.world, time.monotonic()
        deadline = told + _REST_SECONDS
        still = False
        while True:
            world.look_for_successor()
            left = differences(world) or leaks.while_it_runs(world)
            invariants.check()
            if not left and still:
                return
            still = not left
            if time.monotonic() > told + _TOLD_SECONDS:
                told = time.monotonic()
                self.say("rest", f"waits: {'; '.join(left)}")
            assert time.monotonic() < deadline, "it does not settle:\n" + "\n".join(left)
            if left and world.jumps:
                world.clock.jump_ahead(5.0)  # what waits for its next try
            time.sleep(_STILL_SECONDS)

    def check_faults(self) -> None:
        faults = self.world.faults()
        assert not faults, f"an unexpected error of an agent: {faults[0]}"

    def ask_all(self) -> None:
        for name, wish in sorted(self.world.desired.wishes.items()):
            if wish.enabled and wish.loads:
                body = {"model": name, "messages": [], "max_tokens": 1}
                answer = self.world.agent.post("/v1/chat/completions", body)
                assert answer.status_code == 200, f"{name} is loaded, and answers {answer.text}"

    def end(self) -> None:
        """The agent that saw it all, compared with a fresh one, and its end."""
        world = self.world
        assert world.agent_pid is not None
        old = leaks.holdings(world.agent_pid)
        ends.end(world, signal.SIGTERM)
        found = [] if world.leaves else leaks.after_its_end(world)
        assert not found, "left behind:\n" + "\n".join(found)
        world.start(Random(self.seed), leaves=False)
        world.wait_up()
        world.wait_taken_up()
        with Invariants(world) as invariants:
            self.wait_settled(invariants)
        self.ask_all()
        assert world.agent_pid is not None
        leaked = leaks.more_than(old, leaks.holdings(world.agent_pid))
        assert not leaked, "the agent leaks:\n" + "\n".join(leaked)
        ends.end(world, signal.SIGTERM)
        self.check_faults()
        found = leaks.after_its_end(world) + world.decoys.harmed()
        assert not found, "left behind:\n" + "\n".join(found)

    def say(self, when: int | str, what: str | None) -> None:
        if what is None:
            return
        line = f"{time.monotonic() - self._began:7.1f} s  step {when}: {what}"
        self.log.append(line)
        print(line, file=sys.stderr, flush=True)


def _start(world: World, rng: Random) -> str | None:
    return world.start(rng) if world.started_pid is None else None


def _mending(harm: Step) -> Step:
    return lambda world, _rng: harms.mend(world, harm)
