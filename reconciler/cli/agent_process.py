"""Runs an agent as this process: the event loop, and the signals that end it."""

import asyncio
import resource
import signal
from collections.abc import Awaitable, Callable

import structlog
import uvloop

from reconciler.cli.garbage import collect_what_comes
from reconciler.cli.supervise import SupervisorLine
from reconciler.cli.turns import take_short_turns
from reconciler.loop.clock import Clock
from reconciler.node.agent import Up, run_agent
from reconciler.node.service_manager import ServiceManager
from reconciler.node.shutdown import Shutdown
from reconciler.settings import Settings

_log = structlog.get_logger("xgen.node")

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""A closed terminal and a dropped connection (HUP) must not leave backends behind either."""

Companion = Callable[[Up, Shutdown], Awaitable[int]]
"""Runs beside the agent from the moment it answers; when it returns, the agent ends."""


def run_until_signalled(
    settings: Settings,
    *,
    companion: Companion | None = None,
    cut_short: int = 0,
    clock: Clock | None = None,
    supervisor: SupervisorLine | None = None,
    manager: ServiceManager | None = None,
    ended_by: str = "",
) -> int:
    """Run the agent until a signal ends it (R10), until its companion returns, or until its
    supervisor is gone. `ended_by`: what has told it to end before it began; empty: nothing.

    Returns the exit code: the agent's own when that is not 0, else the companion's, or `cut_short`
    where a signal came before the companion's end.
    """
    _raise_file_limit()
    take_short_turns()
    return uvloop.run(_main(settings, companion, cut_short, clock, supervisor, manager, ended_by))


def _raise_file_limit() -> None:
    """A stream takes two files; the usual soft limit of 1,024 is for programs with select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _heed(shutdown: Shutdown, supervisor: SupervisorLine | None) -> None:
    """From now on signals, and the supervisor's death, end the agent in order."""
    loop = asyncio.get_running_loop()
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup's wish is heeded
            loop.add_signal_handler(number, shutdown.signal, number.name)
    for number in (signal.SIGUSR1, signal.SIGUSR2):  # their default is death without an end
        loop.add_signal_handler(number, _log.info, "signal has no meaning here")
    if supervisor is not None:
        supervisor.heed(lambda: shutdown.signal("the supervisor's end"))


async def _main(
    settings: Settings,
    companion: Companion | None,
    cut_short: int,
    clock: Clock | None,
    supervisor: SupervisorLine | None,
    manager: ServiceManager | None,
    ended_by: str,
) -> int:
    shutdown = Shutdown()
    if ended_by:
        shutdown.signal(ended_by)
    _heed(shutdown, supervisor)
    beside: list[asyncio.Task[int]] = []

    async def accompany(up: Up, run: Companion) -> int:
        try:
            return await run(up, shutdown)
        finally:
            if not shutdown.begun.is_set():
                shutdown.signal("the companion's end")

    def on_up(up: Up) -> None:
        collect_what_comes()
        if supervisor is not None:
            supervisor.say_up()
        if companion is not None:
            beside.append(asyncio.create_task(accompany(up, companion), name="companion"))

    code = await run_agent(settings, shutdown, clock=clock, on_up=on_up, manager=manager)
    if supervisor is not None:
        supervisor.say_ended()
    for task in beside:
        task.cancel()
        outcome = (await asyncio.gather(task, return_exceptions=True))[0]
        if isinstance(outcome, asyncio.CancelledError):
            outcome = cut_short
        if isinstance(outcome, BaseException):
            raise outcome
        code = code or outcome
    return code
