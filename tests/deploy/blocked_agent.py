"""The agent, whose event loop stands still from the moment that a file is there.

python -m tests.deploy.blocked_agent FILE run …
"""

import asyncio
import sys
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import uvloop

from reconciler.cli.main import main

_run = uvloop.run


def block(loop: asyncio.AbstractEventLoop, file: Path) -> None:
    while not file.exists():
        time.sleep(0.05)
    loop.call_soon_threadsafe(time.sleep, 3600)


def run_until_blocked(agent: Coroutine[Any, Any, int]) -> int:
    async def watched() -> int:
        threading.Thread(target=block, args=(asyncio.get_running_loop(), file), daemon=True).start()
        return await agent

    return _run(watched())


if __name__ == "__main__":
    file = Path(sys.argv.pop(1))
    setattr(uvloop, "run", run_until_blocked)  # noqa: B010  of another type than the whole of it
    main()
