"""Runs an agent as this process: the event loop, and the signals that end it."""

import asyncio
import signal
from collections.abc import Awaitable, Callable

import uvloop

from reconciler.node.agent import Up, run_agent
from reconciler.node.shutdown import Shutdown
from reconciler.settings import Settings

Companion = Callable[[Up, Shutdown], Awaitable[int]]
"""Runs beside the agent from the moment it answers; when it returns, the agent ends."""


def run_until_signalled(settings: Settings, *, companion: Companion | None = None) -> int:
    """Run the agent until SIGTERM or SIGINT (R10), or until its companion returns.

    Returns the exit code: the agent's own when that is not 0, else the companion's.
    """
    return uvloop.run(_main(settings, companion))


async def _main(settings: Settings, companion: Companion | None) -> int:
    shutdown = Shutdown()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, shutdown.signal, number.name)
    beside: list[asyncio.Task[int]] = []

    async def accompany(up: Up, run: Companion) -> int:
        try:
            return await run(up, shutdown)
        finally:
            if not shutdown.begun.is_set():
                shutdown.signal("the companion's end")

    def on_up(up: Up) -> None:
        if companion is not None:
            beside.append(asyncio.create_task(accompany(up, companion), name="companion"))

    code = await run_agent(settings, shutdown, on_up=on_up)
    for task in beside:
        task.cancel()
        outcome = (await asyncio.gather(task, return_exceptions=True))[0]
        if isinstance(outcome, asyncio.CancelledError):
            continue
        if isinstance(outcome, BaseException):
            raise outcome
        code = code or outcome
    return code
