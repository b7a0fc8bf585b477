"""An agent that only spawns, to be killed hard: `python -m tests.apply.agent_stand_in DIR MARK …`.

What follows are the stand-in's flags. Prints the backend's pid once it is loaded, then waits.
"""

import asyncio
import sys
from pathlib import Path

from tests.apply.world import World


async def main() -> None:
    world = World(data_dir=Path(sys.argv[1]), mark=sys.argv[2])
    await world.backends.open()
    children = sys.argv.count("--child")
    view = await world.spawn_loaded(*sys.argv[3:], children=children)
    print(view.pid, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
