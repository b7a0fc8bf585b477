"""Commands are noted at once, carried out by the loop."""

import asyncio

from reconciler.loop.commands import Commands
from reconciler.plan.ids import ModelName


async def test_a_command_wakes_the_loop_and_gets_its_answer() -> None:
    woken: list[str] = []
    commands = Commands(
        wake=lambda: woken.append("loop"), look_again=lambda: woken.append("source")
    )
    asked = asyncio.create_task(commands.reconcile(retry=True, model=None, asked_by="a test"))
    await asyncio.sleep(0)
    (command,) = commands.take()
    command.done.set_result((ModelName("m"),))
    assert await asked == ("m",)
    assert sorted(woken) == ["loop", "source"]
    assert commands.take() == ()


async def test_a_command_whose_client_left_before_it_was_taken_is_not_carried_out() -> None:
    commands = Commands(wake=lambda: None, look_again=lambda: None)
    asked = asyncio.create_task(commands.reconcile(retry=True, model=None, asked_by="a test"))
    await asyncio.sleep(0)
    asked.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    assert commands.take() == ()
