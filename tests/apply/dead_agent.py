"""An agent that was killed hard, and what it has left in the world."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from reconciler.apply.backends import BackendView
from tests.apply.world import World

SESSION_NOTED = '"sessions": [\n'
"""In a record: the sweep has seen a process in a session of its own."""
LOAD_NOTED = '"loaded": true'
STOP_NOTED = '"stopping": true'


@dataclass
class DeadAgent:
    """`pid`: of the backend."""

    world: World
    pid: int

    @property
    def record(self) -> Path:
        """Beside it may lie what the kill left half written."""
        (path,) = (path for path in self.world.records() if path.suffix == ".json")
        return path

    def rewrite(self, **fields: object) -> None:
        record = json.loads(self.record.read_text())
        self.record.write_text(json.dumps(record | fields))

    def of_an_older_release(self) -> None:
        """Whose records do not say how to go on with a backend."""
        record = json.loads(self.record.read_text())
        for name in (
            "shared_memory",
            "loaded",
            "first_answer_seconds",
            "spec",
            "launch",
            "launch_hash",
            "folder",
        ):
            del record[name]
        self.record.write_text(json.dumps(record))

    async def next_agent(self) -> None:
        await self.world.backends.close()
        self.world.backends = self.world.make_backends()
        await self.world.backends.open()

    async def adopted(self) -> BackendView:
        """By the next agent, which it has answered."""
        await self.next_agent()
        (view,) = self.world.backends.live()
        await self.world.until(lambda: self.world.view(view).loaded_at is not None, "it answers")
        return self.world.view(view)

    async def stop(self) -> None:
        backends = self.world.backends
        views, leftovers = backends.live(), backends.leftovers()
        (nonce,) = (*(view.nonce for view in views), *(left.nonce for left in leftovers))
        await backends.stop(nonce, stop_seconds=30, kill_seconds=30)


async def dead_agent(
    world: World, *flags: str, note: str = "", wrapper: Sequence[str] = ()
) -> DeadAgent:
    """`note`: wait until the record holds this, before the kill. `wrapper`: runs the agent."""
    agent = await asyncio.create_subprocess_exec(
        *wrapper,
        sys.executable,
        "-m",
        "tests.apply.agent_stand_in",
        str(world.data_dir),
        world.mark,
        *flags,
        stdout=subprocess.PIPE,
    )
    assert agent.stdout is not None
    pid = int(await agent.stdout.readline())
    world.sessions.add(pid)
    world.plays_init = True
    (record,) = (path for path in world.records() if path.suffix == ".json")
    await world.until(lambda: note in record.read_text(), "it is noted")
    agent.kill()
    await agent.wait()
    return DeadAgent(world=world, pid=pid)
