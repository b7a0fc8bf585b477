"""One exchange, without a connection: what is written in one piece, and who waits for news."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Message
from uvicorn.protocols.http.flow_control import FlowControl

from reconciler.proxy.errors import Header
from reconciler.proxy.exchange import BODY_FOLLOWS, Exchange

_START: Message = {"type": "http.response.start", "status": 200, "headers": []}
_BODY: Message = {"type": "http.response.body", "body": b"x"}


class _Transport(asyncio.Transport):
    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


@dataclass
class _Wire:
    """Notes what is written."""

    flow: FlowControl = field(default_factory=lambda: FlowControl(_Transport()))
    written: list[bytes] = field(default_factory=list)
    ended: bool = False

    def default_headers(self) -> list[Header]:
        return []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def answered(self, exchange: Exchange) -> None:
        self.ended = True

    def cut(self, exchange: Exchange) -> None:
        self.ended = True

    def reset_at_end(self, on: bool) -> None:
        pass


def _exchange(wire: _Wire, method: str = "GET") -> Exchange:
    scope: dict[str, Any] = {"method": method, "http_version": "1.1", "state": {}, "path": "/"}
    return Exchange(scope, wire, last=False, expects_continue=False)


async def test_a_head_goes_out_at_once() -> None:
    wire = _Wire()
    await _exchange(wire).send(_START)
    assert len(wire.written) == 1
    assert wire.written[0].endswith(b"\r\n\r\n")


async def test_a_head_whose_body_follows_goes_out_with_it() -> None:
    wire = _Wire()
    exchange = _exchange(wire)
    await exchange.send({**_START, BODY_FOLLOWS: True})
    assert wire.written == []
    await exchange.send(_BODY)
    assert len(wire.written) == 1
    assert wire.written[0].endswith(b"\r\n\r\n1\r\nx\r\n0\r\n\r\n")
    assert wire.ended


async def test_a_head_that_is_the_whole_answer_waits_for_no_body() -> None:
    wire = _Wire()
    exchange = _exchange(wire, "HEAD")
    await exchange.send({**_START, BODY_FOLLOWS: True})
    assert len(wire.written) == 1
    assert wire.ended


async def test_who_stops_waiting_for_the_body_takes_nothing_from_the_next() -> None:
    exchange = _exchange(_Wire())
    impatient = asyncio.create_task(exchange.receive())
    await asyncio.sleep(0)
    impatient.cancel()
    await asyncio.gather(impatient, return_exceptions=True)
    patient = asyncio.create_task(exchange.receive())
    await asyncio.sleep(0)
    exchange.take(b"x")
    exchange.complete_body()
    assert await patient == {"type": "http.request", "body": b"x", "more_body": False}


async def test_all_who_wait_hear_that_the_client_left() -> None:
    exchange = _exchange(_Wire())
    waiting = [asyncio.create_task(exchange.receive()) for _ in range(2)]
    await asyncio.sleep(0)
    exchange.leave()
    assert await asyncio.gather(*waiting) == [{"type": "http.disconnect"}] * 2
