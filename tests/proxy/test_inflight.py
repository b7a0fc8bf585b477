"""Counting what is in flight. kubeai#9: a cancelled request still counted as load (scenario 50)."""

import asyncio

import pytest

from reconciler.plan.ids import ModelName, Nonce
from reconciler.proxy.inflight import Traffic

MODEL, OLD, NEW = ModelName("llm"), Nonce("old"), Nonce("new")


def test_counts_by_process_and_by_model() -> None:
    traffic = Traffic()
    with traffic.request(MODEL, OLD), traffic.request(MODEL, OLD), traffic.request(MODEL, NEW):
        assert (traffic.in_flight(OLD), traffic.in_flight(NEW)) == (2, 1)
        assert (traffic.of_model(MODEL), traffic.total) == (3, 3)
    assert (traffic.in_flight(OLD), traffic.of_model(MODEL), traffic.total) == (0, 0, 0)


@pytest.mark.parametrize("failure", [RuntimeError, asyncio.CancelledError])
def test_a_request_that_fails_is_no_longer_counted(failure: type[BaseException]) -> None:
    traffic = Traffic()
    with pytest.raises(failure), traffic.request(MODEL, OLD):
        raise failure
    assert traffic.in_flight(OLD) == 0


async def test_waits_until_the_last_request_of_the_process_ends() -> None:
    traffic = Traffic()
    with traffic.request(MODEL, NEW):
        with traffic.request(MODEL, OLD):
            waiting = [asyncio.create_task(traffic.wait_idle(OLD)) for _ in range(2)]
            await asyncio.sleep(0)
            assert not any(task.done() for task in waiting)
        await asyncio.gather(*waiting)
        assert traffic.in_flight(NEW) == 1


async def test_an_idle_process_is_not_waited_for() -> None:
    await Traffic().wait_idle(OLD)


async def test_a_request_that_comes_at_the_last_moment_is_waited_for_too() -> None:
    traffic = Traffic()
    with traffic.request(MODEL, OLD):
        waiting = asyncio.create_task(traffic.wait_idle(OLD))
        await asyncio.sleep(0)
    with traffic.request(MODEL, OLD):
        await asyncio.sleep(0)
        assert not waiting.done()
    await waiting
