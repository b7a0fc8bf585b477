"""Sure death (R10), for a spawn of ours or one that an earlier agent left.

TERM to the leader ─ stop_seconds ─▶ TERM to the rest ─ a moment ─▶ KILL, again and again
─▶ reap ─▶ look: nobody left, or the survivors by name ─▶ their shared memory

The leader comes first, since engines end their own workers in order. Workers that outlive it, or
were born outside its group, get the rest of the ladder (vllm#55510, PR#44751).
"""

import asyncio
import signal
from collections.abc import Iterator

import structlog

from reconciler.apply.kin import Kin
from reconciler.errors import Transient
from reconciler.observe.processes import Process

_log = structlog.get_logger("xgen.backends")

REST_SECONDS = 2.0
"""For what is left after the leader, between TERM and KILL."""


async def bring_down(
    kin: Kin, *, stop_seconds: float, kill_seconds: float, urgent: asyncio.Event
) -> None:
    """Return when provably nobody of the spawn is left; its leader is reaped then.

    `urgent`: set before or in between, KILL comes at once. Raises Transient that names who
    survives `kill_seconds` of KILL (state D: the kernel holds it) or may not be signalled.
    """
    await asyncio.to_thread(kin.note_shared_memory)
    if not urgent.is_set():
        await _ask_leader(kin, stop_seconds, urgent)
    if not urgent.is_set():
        await _ask_rest(kin, urgent)
    left = await _kill(kin, kill_seconds)
    if left:
        names = ", ".join(map(str, left))
        raise Transient(f"cannot stop {kin.record.model}: still there after SIGKILL: {names}")
    if removed := await asyncio.to_thread(kin.remove_shared_memory):
        _log.info("shared memory of a killed backend removed", names=removed)


async def _ask_leader(kin: Kin, seconds: float, urgent: asyncio.Event) -> None:
    leader = kin.leader
    if leader is None or leader.gone.is_set():
        return
    leader.send(signal.SIGTERM)
    leader.send(signal.SIGCONT)  # a stopped one could not even hear TERM
    waits = [
        asyncio.create_task(event.wait(), name=f"stop:{kin.record.model}")
        for event in (leader.gone, urgent)
    ]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def _ask_rest(kin: Kin, urgent: asyncio.Event) -> None:
    await asyncio.to_thread(kin.note_shared_memory)
    left = kin.alive
    if all(process.pid == kin.record.pid for process in left):
        return  # nobody, or a leader that has had its time
    kin.send(left, signal.SIGTERM)
    kin.send(left, signal.SIGCONT)
    deadline = _now() + REST_SECONDS
    steps = _steps()
    while left and not urgent.is_set() and _now() < deadline:
        await asyncio.sleep(next(steps))
        left = await asyncio.to_thread(kin.look)


async def _kill(kin: Kin, seconds: float) -> tuple[Process, ...]:
    """KILL until two looks in a row see nobody; whom it does not end in time is returned.

    Two: a look is not one instant, and who is born during it is seen by the next one only.
    """
    deadline = _now() + seconds
    steps = _steps()
    seen_nobody = False
    while True:
        left = await asyncio.to_thread(kin.look)
        if not left:
            if seen_nobody:
                return ()
            kin.reap_leader()
        else:
            kin.kill()
            if _now() >= deadline:
                return left
            await asyncio.sleep(next(steps))
        seen_nobody = not left


def _steps() -> Iterator[float]:
    """Ever longer pauses between looks, in seconds."""
    step = 0.01
    while True:
        yield step
        step = min(step * 2, 0.2)


def _now() -> float:
    return asyncio.get_running_loop().time()
