"""`WhileClientStays`: what happens to its body when the client leaves, and when others cancel."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from reconciler.proxy.client import ClientLeft, Presence, WhileClientStays

_Work = Callable[[], Awaitable[None]]


class _Visit:
    """A task whose body works for a client."""

    def __init__(self, work: _Work) -> None:
        self.presence = Presence()
        self.begun = asyncio.Event()
        self.task = asyncio.create_task(self._run(work))

    async def _run(self, work: _Work) -> int:
        """How often the task is still to be cancelled, behind a client that left."""
        try:
            with WhileClientStays({"state": {"presence": self.presence}}):
                self.begun.set()
                await work()
        except ClientLeft:
            task = asyncio.current_task()
            assert task is not None
            return task.cancelling()
        return -1


async def _for_ever() -> None:
    await asyncio.Event().wait()


async def _at_once() -> None:
    pass


async def _in_a_group() -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(_for_ever())
        group.create_task(_for_ever())


async def _failing_when_cancelled() -> None:
    try:
        await _for_ever()
    finally:
        raise ValueError("on the way out")


@pytest.mark.parametrize("work", [_for_ever, _in_a_group])
async def test_the_body_ends_at_once_and_the_task_goes_on(work: _Work) -> None:
    visit = _Visit(work)
    await visit.begun.wait()
    visit.presence.end()
    assert await visit.task == 0


async def test_one_that_left_before_is_not_worked_for() -> None:
    visit = _Visit(_for_ever)
    visit.presence.end()
    assert await visit.task == 0
    assert not visit.begun.is_set()


async def test_a_task_that_others_cancel_too_stays_cancelled() -> None:
    """As when the agent ends: its server cancels what is left."""
    for order in (1, -1):
        visit = _Visit(_for_ever)
        await visit.begun.wait()
        for end in (visit.presence.end, visit.task.cancel)[::order]:
            end()
        with pytest.raises(asyncio.CancelledError):
            await visit.task


async def test_a_failure_on_the_way_out_is_not_hidden() -> None:
    visit = _Visit(_failing_when_cancelled)
    await visit.begun.wait()
    visit.presence.end()
    with pytest.raises(ValueError, match="on the way out"):
        await visit.task


async def test_who_leaves_behind_the_body_disturbs_nobody() -> None:
    visit = _Visit(_at_once)
    assert await visit.task == -1
    visit.presence.end()
