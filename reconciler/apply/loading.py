"""Waiting until a backend serves."""

import asyncio
from collections.abc import Callable

import aiohttp

from reconciler.backend.launch import Launch
from reconciler.observe.readiness import NotYet, probe

_FIRST_PAUSE_SECONDS = 0.05
_LAST_PAUSE_SECONDS = 1.0


async def until_ready(
    session: aiohttp.ClientSession,
    launch: Launch,
    *,
    first_answer_seconds: float,
    report: Callable[[str], None],
) -> None:
    """Ask until it gives a real answer; no deadline, that is the planner's.

    `report` is told what is still missing, each time that it is something else. A state is never
    taken from an earlier poll: "starting" ends with the first good answer (llama-swap#558).
    """
    pause, said = _FIRST_PAUSE_SECONDS, ""
    while isinstance(
        outcome := await probe(session, launch, first_answer_seconds=first_answer_seconds), NotYet
    ):
        if outcome.reason != said:
            said = outcome.reason
            report(said)
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _LAST_PAUSE_SECONDS)
