"""Counting what is in flight. kubeai#9: a cancelled request still counted as load (scenario 50)."""

import asyncio

import pytest

from reconciler.plan.ids import ModelName, Nonce
from reconciler.proxy.heartbeat import Heartbeat
from reconciler.proxy.inflight import Traffic

MODEL, OLD, NEW = ModelName("llm"), Nonce("old"), Nonce("new")


def _to_client(*, sending: bool) -> Heartbeat:
    async def send(_: object) -> None:
        raise AssertionError("nothing is sent")

    made = Heartbeat(send, seconds=60.0, may_begin=None, head=dict)
    made.sending = sending
    return made


async def test_only_requests_whose_next_byte_is_the_engines_are_awaited() -> None:
    traffic = Traffic()
    with traffic.request(MODEL, OLD) as one, traffic.request(MODEL, OLD) as other:
        assert traffic.awaited(OLD) == 2
        one.heartbeat = _to_client(sending=False)
        other.heartbeat = _to_client(sending=True)
        assert (traffic.awaited(OLD), traffic.in_flight(OLD)) == (1, 2)
    assert traffic.awaited(OLD) == 0


def test_relayed_bytes_of_a_process_only_grow_and_go_with_it() -> None:
    traffic = Traffic()
    with traffic.request(MODEL, OLD) as request:
        request.relayed_bytes += 5
        assert traffic.relayed_bytes(OLD) == 0
        request.is_work = True
        assert traffic.relayed_bytes(OLD) == 5
    with traffic.request(MODEL, OLD) as refused:
        refused.relayed_bytes += 100  # an error, which a dead engine's server gives too
    with traffic.request(MODEL, NEW) as other:
        other.is_work, other.relayed_bytes = True, 7
    assert (traffic.relayed_bytes(OLD), traffic.relayed_bytes(NEW)) == (5, 7)
    traffic.keep_only([NEW])
    assert (traffic.relayed_bytes(OLD), traffic.relayed_bytes(NEW)) == (0, 7)


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
