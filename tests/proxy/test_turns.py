"""`max_in_flight`: at most so many at the backend, the others wait in the order they came."""

import asyncio

import pytest

from reconciler.plan.ids import ModelName
from reconciler.proxy.turns import QueueFull, Turns, WaitedTooLong
from tests.proxy.agent import Agent, running_agent
from tests.proxy.stand_in import StartStandIn

MODEL = ModelName("llm")


class _Guests:
    """Who has a turn, who had one, and in which order."""

    def __init__(self, *, queue_length: int = 10, wait_seconds: float = 60.0) -> None:
        self.turns = Turns(queue_length=queue_length, wait_seconds=wait_seconds)
        self._may_go: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.inside: list[str] = []

    async def come(self, *names: str, limit: int | None = 1) -> None:
        for name in names:
            self._may_go[name] = asyncio.Event()
            self.tasks[name] = asyncio.create_task(self._visit(name, limit))
        await self.settle()

    async def go(self, name: str) -> None:
        self._may_go[name].set()
        await self.tasks[name]
        await self.settle()

    async def settle(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def _visit(self, name: str, limit: int | None) -> None:
        async with self.turns.turn(MODEL, limit):
            self.inside.append(name)
            try:
                await self._may_go[name].wait()
            finally:
                self.inside.remove(name)


async def test_first_come_first_served() -> None:
    guests = _Guests()
    await guests.come("a", "b", "c")
    for name in ("a", "b", "c"):
        assert guests.inside == [name]
        await guests.go(name)


async def test_as_many_as_may_are_in_at_once() -> None:
    guests = _Guests()
    await guests.come("a", "b", "c", limit=2)
    assert guests.inside == ["a", "b"]
    for name in ("a", "b", "c"):
        await guests.go(name)


async def test_who_comes_while_others_wait_does_not_pass_them() -> None:
    guests = _Guests()
    await guests.come("a", "b")
    guests.tasks["a"].cancel()
    await guests.come("late")
    assert guests.inside == ["b"]
    for name in ("b", "late"):
        await guests.go(name)


async def test_a_full_queue_takes_nobody() -> None:
    guests = _Guests(queue_length=1)
    await guests.come("a", "b", "c")
    assert isinstance(guests.tasks["c"].exception(), QueueFull)
    for name in ("a", "b"):
        await guests.go(name)


async def test_who_waited_too_long_leaves_the_queue() -> None:
    guests = _Guests(wait_seconds=0.05, queue_length=1)
    await guests.come("a", "b")
    with pytest.raises(WaitedTooLong):
        await guests.tasks["b"]
    await guests.come("c")
    await guests.go("a")
    assert guests.inside == ["c"]
    await guests.go("c")


async def test_who_is_cancelled_leaves_the_queue() -> None:
    guests = _Guests(queue_length=2)
    await guests.come("a", "b", "c")
    guests.tasks["b"].cancel()
    await guests.settle()
    await guests.come("d")
    for name in ("a", "c", "d"):
        assert guests.inside == [name]
        await guests.go(name)


@pytest.mark.parametrize("turns_back", [0, 1, 2, 3])
async def test_a_turn_that_comes_as_its_guest_is_cancelled_goes_to_the_next(
    turns_back: int,
) -> None:
    guests = _Guests()
    await guests.come("a", "b", "c")
    guests.tasks["a"].cancel()
    for _ in range(turns_back):
        await asyncio.sleep(0)
    guests.tasks["b"].cancel()
    await guests.settle()
    assert guests.inside == ["c"]
    await guests.go("c")


async def test_a_limit_that_is_raised_or_taken_away_lets_the_waiting_in() -> None:
    guests = _Guests()
    await guests.come("a", "b", "c", "d")
    await guests.come("e", limit=3)
    assert guests.inside == ["a", "b", "c"]
    await guests.come("f", limit=None)
    assert sorted(guests.inside) == ["a", "b", "c", "d", "e", "f"]
    for name in tuple(guests.inside):
        await guests.go(name)


async def test_a_limit_counts_those_who_came_before_there_was_one() -> None:
    guests = _Guests()
    await guests.come("a", limit=None)
    await guests.come("b", limit=1)
    assert guests.inside == ["a"]
    for name in ("a", "b"):
        await guests.go(name)


async def _until_waiting(agent: Agent, count: int) -> None:
    sample = f'xgen_requests_waiting{{model="llm"}} {count}.0\n'.encode()
    while sample not in (await agent.get("/metrics")).body:
        pass


def _ask(agent: Agent, count: int) -> list["asyncio.Task[int]"]:
    async def one() -> int:
        return (await agent.chat({"model": "llm"})).status

    return [asyncio.create_task(one()) for _ in range(count)]


async def test_the_backend_never_has_more_and_all_are_answered(stand_in: StartStandIn) -> None:
    """litellm PR#24988: a limit was bypassed (scenario 62)."""
    backend = stand_in("--first-byte-after", "0.05")
    async with running_agent(backend.as_model(max_in_flight=2)) as agent:
        asked = _ask(agent, 8)
        most = 0
        while not all(task.done() for task in asked):
            most = max(most, (await backend.state())["running"])
        assert await asyncio.gather(*asked) == [200] * 8
        assert most == 2
        assert agent.traffic.total == 0


async def test_a_full_queue_is_429_and_a_long_wait_503(stand_in: StartStandIn) -> None:
    backend = stand_in("--hang")
    settings = {"queue_length": 1, "queue_seconds": 1.0}
    async with running_agent(backend.as_model(max_in_flight=1), settings=settings) as agent:
        await agent.send_raw({"model": "llm"})
        await backend.until_running(1)
        both = await asyncio.gather(agent.chat({"model": "llm"}), agent.chat({"model": "llm"}))
        full, late = sorted(both, key=lambda answer: answer.status)
        assert (full.status, full.error["code"]) == (429, "rate_limit_exceeded")
        assert full.error["type"] == "rate_limit_error"
        assert (late.status, late.error["code"]) == (503, "queue_timeout")
        for answer in (full, late):
            assert answer.headers["Retry-After"] == "5"
            assert answer.headers["X-Xgen-Not-Started"] == "1"
            assert answer.headers["X-Served-By"] == "node-a/llm"
        assert (await backend.state())["seen"] == 1


async def test_a_client_that_leaves_the_queue_makes_room_in_it(stand_in: StartStandIn) -> None:
    backend = stand_in("--hang")
    model = backend.as_model(max_in_flight=1)
    async with running_agent(model) as agent:
        _, running = await agent.send_raw({"model": "llm"})
        await backend.until_running(1)
        _, waiting = await agent.send_raw({"model": "llm"})
        await _until_waiting(agent, 1)
        waiting.close()
        await _until_waiting(agent, 0)
        running.close()
        await backend.until(lambda state: state["cancelled"] == 1 and state["running"] == 0)
        assert agent.traffic.total == 0
        assert (await backend.state())["seen"] == 1


async def test_a_turn_at_a_model_that_is_gone_by_then_is_refused(stand_in: StartStandIn) -> None:
    backend = stand_in("--hang")
    serving = backend.as_model(max_in_flight=1)
    async with running_agent(serving) as agent:
        _, running = await agent.send_raw({"model": "llm"})
        await backend.until_running(1)
        waiting = asyncio.create_task(agent.chat({"model": "llm"}))
        await _until_waiting(agent, 1)
        agent.board.set()
        running.close()
        assert (await waiting).error["code"] == "model_not_found"


async def test_room_is_told_once_nobody_has_to_be_waited_for() -> None:
    guests = _Guests()
    await guests.come("a", "b")
    told = asyncio.create_task(guests.turns.until_room(MODEL))
    await guests.go("a")
    assert not told.done()
    await guests.go("b")
    await told


async def test_who_asks_for_room_and_leaves_is_forgotten() -> None:
    guests = _Guests()
    await guests.come("a")
    told = asyncio.create_task(guests.turns.until_room(MODEL))
    await guests.settle()
    told.cancel()
    await guests.settle()
    await guests.go("a")
    assert guests.turns.has_room(MODEL)


async def test_who_looks_for_something_else_leaves_no_queue_behind() -> None:
    """First come first served holds for what is found elsewhere, too."""
    turns = Turns(queue_length=2, wait_seconds=60.0)
    found: list[bool] = []

    async def look_for(name: str) -> None:
        async with turns.turn(MODEL, 0, lambda: name if found else None) as turn:
            order.append(turn.found)

    order: list[object] = []
    tasks = [asyncio.create_task(look_for(name)) for name in ("a", "b")]
    await asyncio.sleep(0)
    with pytest.raises(QueueFull):
        await look_for("c")
    assert (turns.waiting(MODEL), order) == (2, [])
    found.append(True)
    turns.look_around(MODEL)
    await asyncio.gather(*tasks)
    assert order == ["a", "b"]
    assert (turns.waiting(MODEL), turns.has_room(MODEL)) == (0, True)


async def test_who_looks_may_have_less_time() -> None:
    turns = Turns(queue_length=2, wait_seconds=60.0)
    with pytest.raises(WaitedTooLong):
        async with turns.turn(MODEL, 0, lambda: None, wait_seconds=0.01):
            raise AssertionError
    assert turns.has_room(MODEL)
