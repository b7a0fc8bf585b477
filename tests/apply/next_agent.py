"""An agent that only looks at what is left: `python -m tests.apply.next_agent DIR`.

Prints, as JSON, what it says of it, or why it cannot start.
"""

import asyncio
import json
import sys
from pathlib import Path

from reconciler.errors import Rejected
from tests.apply.world import World


async def main() -> None:
    world = World(data_dir=Path(sys.argv[1]), mark="none")
    try:
        await world.backends.open()
    except Rejected as exc:
        print(json.dumps([str(exc)]))
        return
    print(json.dumps(world.backends.problems))
    await world.backends.close()


if __name__ == "__main__":
    asyncio.run(main())
