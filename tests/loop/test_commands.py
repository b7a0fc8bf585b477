"""Commands are noted at once, carried out by the loop."""

import asyncio

from reconciler.loop.commands import Commands
from reconciler.plan.ids import ModelName


def read_already() -> asyncio.Event:
    read = asyncio.Event()
    read.set()
    return read


async def test_a_command_wakes_the_loop_and_gets_its_answer() -> None:
    woken: list[str] = []
    commands = Commands(wake=lambda: woken.append("loop"), look_again=read_already)
    asked = asyncio.create_task(commands.reconcile(retry=True, model=None, asked_by="a test"))
    await asyncio.sleep(0)
    (command,) = commands.take()
    command.done.set_result({ModelName("m"): None})
    assert await asked == {"m": None}
    assert woken == ["loop"]
    assert commands.take() == ()


async def test_a_command_whose_client_left_before_it_was_taken_is_not_carried_out() -> None:
    commands = Commands(wake=lambda: None, look_again=read_already)
    asked = asyncio.create_task(commands.reconcile(retry=True, model=None, asked_by="a test"))
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    assert commands.take() == ()


async def test_a_command_is_noted_once_the_manifest_was_read() -> None:
    read = asyncio.Event()
    commands = Commands(wake=lambda: None, look_again=lambda: read, read_seconds=60)
    asked = asyncio.create_task(commands.reconcile(retry=False, model=None, asked_by="a test"))
    await asyncio.sleep(0)
    before = commands.take()
    read.set()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    (command,) = commands.take()
    command.done.set_result({})
    await asked
    assert before == ()


async def test_a_source_that_hangs_holds_up_no_command() -> None:
    noted = asyncio.Event()
    commands = Commands(wake=noted.set, look_again=asyncio.Event, read_seconds=0.01)
    asked = asyncio.create_task(commands.reconcile(retry=True, model=None, asked_by="a test"))
    await noted.wait()
    (command,) = commands.take()
    command.done.set_result({})
    assert await asked == {}
