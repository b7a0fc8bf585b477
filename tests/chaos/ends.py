"""How agents and their supervisors end, by their own hand or another's."""

import contextlib
import os
import signal
import time

from tests.chaos import census
from tests.chaos.world import SLACK_SECONDS, World
from tests.waiting import wait_until


def end(world: World, number: signal.Signals) -> None:
    """A signal to what was started, and the end of that. An agent whose supervisor is killed ends
    as it was told to."""
    below = world.below
    if world.leaves or (number is signal.SIGKILL and not world.supervised):
        world.unwatch()
    world.thaw(*world.pids)
    code = _signal(world, number)
    expected = 0 if number is signal.SIGTERM else -number
    assert code == expected, f"it ended with {code}\n{world.agent.recent_log}"
    _wait_dead(world, *below)


def crash(world: World) -> int:
    """The agent below its supervisor is killed; its pid."""
    agent = world.agent_pid
    assert agent is not None
    world.unwatch()
    world.crashed = agent
    world.crashes += 1
    os.kill(agent, signal.SIGKILL)
    _wait_dead(world, agent)
    return agent


def end_and_crash(world: World, seconds: float) -> None:
    """The supervisor is told to end, and its agent is killed so long after."""
    assert world.agent.process is not None
    world.unwatch()
    world.agent.process.send_signal(signal.SIGTERM)
    time.sleep(seconds)
    _kill(world.agent_pid)
    code = world.agent.process.wait(SLACK_SECONDS)
    expected = (0, 128 + signal.SIGKILL) if world.leaves else (0,)
    assert code in expected, f"the supervisor ended with {code}\n{world.agent.recent_log}"


def kill_both(world: World) -> None:
    """Supervisor and agent at once, so that nobody is there to end anything."""
    agent, below = world.agent_pid, world.below
    world.unwatch()
    world.thaw(*world.pids)
    assert world.agent.process is not None
    world.agent.process.kill()
    _kill(agent)
    world.agent.process.wait(SLACK_SECONDS)
    _wait_dead(world, *below)


def _signal(world: World, number: signal.Signals) -> int:
    assert world.agent.process is not None
    world.agent.process.send_signal(number)
    return world.agent.process.wait(SLACK_SECONDS)


def _kill(pid: int | None) -> None:
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _wait_dead(world: World, *agents: int) -> None:
    """A spare that is still importing sees later that its supervisor has gone."""
    wait_until(
        lambda: not any(census.start_ticks(agent) for agent in agents),
        what=f"the agents, pids {agents}, have ended\n{world.agent.recent_log}",
        seconds=SLACK_SECONDS,
    )
