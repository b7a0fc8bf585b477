"""Whoever hangs, and is not reached any more, is waited for no longer than a host that vanished."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from reconciler.plan.peering import Address
from reconciler.proxy.forward import BackendLost, Call, Upstream
from reconciler.proxy.outgoing import Attempt
from reconciler.proxy.peers.peer import Peer, Peers
from reconciler.proxy.peers.silence import QUIET_SECONDS, UNREACHED_SECONDS, Silence

_ONE, _OTHER = (Address(host="10.0.0.1", port=port) for port in (1, 2))


class _Known:
    def __init__(self, **reachable: bool) -> None:
        self.say(**reachable)

    def say(self, **reachable: bool) -> None:
        addresses = {"one": _ONE, "other": _OTHER}
        every = [
            Peer(address=addresses[name], document=b"", reachable=is_so)
            for name, is_so in reachable.items()
        ]
        self._peers = Peers(all=tuple(every))

    def refuse(self) -> None:
        self._peers = Peers(all=tuple(replace(each, refuses=True) for each in self._peers.all))

    def current(self) -> Peers:
        return self._peers


def test_who_is_not_reached_for_as_long_is_given_up_again_and_again() -> None:
    given_up: list[tuple[Address, float]] = []
    known = _Known(one=False, other=True)
    silence = Silence(known, lambda address, seconds: given_up.append((address, seconds)))
    silence.look(100.0)
    silence.look(100.0 + UNREACHED_SECONDS - 1)
    assert given_up == []
    silence.look(100.0 + UNREACHED_SECONDS)
    silence.look(100.0 + UNREACHED_SECONDS + 1)
    assert given_up == [(_ONE, QUIET_SECONDS)] * 2


def test_who_is_reached_in_between_begins_anew() -> None:
    given_up: list[Address] = []
    known = _Known(one=False)
    silence = Silence(known, lambda address, _: given_up.append(address))
    silence.look(0.0)
    known.say(one=True)
    silence.look(10.0)
    known.say(one=False)
    silence.look(20.0)
    silence.look(UNREACHED_SECONDS + 10)
    assert given_up == []
    silence.look(UNREACHED_SECONDS + 20)
    assert given_up == [_ONE]


def test_who_refuses_to_tell_is_no_one_who_hangs() -> None:
    given_up: list[Address] = []
    known = _Known(one=False)
    known.refuse()
    silence = Silence(known, lambda address, _: given_up.append(address))
    silence.look(0.0)
    silence.look(UNREACHED_SECONDS)
    assert given_up == []


class _Peer:
    """Answers the first `answers` requests of a connection, and then no more. `connections`: that
    were made to it."""

    def __init__(self, answers: int) -> None:
        self.connections = 0
        self.asked = asyncio.Event()
        self._answers = answers

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            for number in range(1, self._answers + 2):
                await reader.readuntil(b"{}")
                if number <= self._answers:
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            self.asked.set()
            await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def _hanging(answers: int) -> AsyncIterator[tuple[_Peer, Upstream, Call]]:
    peer, upstream = _Peer(answers), Upstream()
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    await upstream.open()
    try:
        yield peer, upstream, Call(at=f"127.0.0.1:{port}", target="/", headers=[], body=b"{}")
    finally:
        await upstream.close()
        server.close()


@pytest.mark.parametrize("answers", [0, 1], ids=["new", "kept"])
async def test_a_request_that_waits_there_is_lost_and_not_sent_there_again(answers: int) -> None:
    """Not on a fresh connection either, though the one that it was on had been used before."""
    async with _hanging(answers) as (peer, upstream, call):
        host, port = call.at.split(":")
        there = Address(host=host, port=int(port))
        for _ in range(answers):
            await (await upstream.send(call, Attempt())).read()
        attempt = Attempt()
        sending = asyncio.create_task(upstream.send(call, attempt))
        await peer.asked.wait()
        upstream.give_up(there, 3600.0)
        upstream.give_up(Address(host=host, port=1), 0.0)
        assert not sending.done()
        upstream.give_up(there, 0.0)
        with pytest.raises(BackendLost, match="is not reached any more") as lost:
            await sending
        assert not lost.value.heard
        assert peer.connections == 1
