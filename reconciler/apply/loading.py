"""Waiting until a backend serves, and passes its checks."""

import asyncio
from collections.abc import Callable

import aiohttp

from reconciler.backend.launch import Launch
from reconciler.observe.checks import Failed, Unanswered, run_check
from reconciler.observe.readiness import FIRST_ANSWER, NotYet, probe

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

    def say(missing: str) -> None:
        nonlocal said
        if missing != said:
            said = missing
            report(said)

    def await_answer() -> None:
        if not said.startswith(FIRST_ANSWER):  # what the last question came to tells more
            say(f"{FIRST_ANSWER}nothing came yet")

    while isinstance(
        outcome := await probe(
            session, launch, first_answer_seconds=first_answer_seconds, waiting=await_answer
        ),
        NotYet,
    ):
        say(outcome.reason)
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _LAST_PAUSE_SECONDS)


async def run_checks(
    session: aiohttp.ClientSession,
    launch: Launch,
    *,
    first_answer_seconds: float,
    report: Callable[[str], None],
) -> Failed | None:
    """One after the other, up to the first that fails. Each has `first_answer_seconds`; one that
    gets no answer, of a process that has died, say, is asked again."""
    for number, check in enumerate(launch.checks, 1):
        name = f"check {number} of {len(launch.checks)}"
        report(f"runs {name}")
        while isinstance(
            outcome := await run_check(
                session,
                launch,
                check,
                served_name=launch.probe.served_name,
                seconds=first_answer_seconds,
            ),
            Unanswered,
        ):
            report(f"runs {name}: {outcome.reason}")
            await asyncio.sleep(_LAST_PAUSE_SECONDS)
        if outcome is not None:
            return Failed(reason=f"{name} failed: {outcome.reason}")
    return None
