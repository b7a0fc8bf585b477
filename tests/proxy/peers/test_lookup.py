"""Look-ups beside the event loop."""

import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest

from reconciler.proxy.peers.lookup import Hanging, Lookups, NoAnswer, resolved


class Gate:
    """A look-up that hangs until it is let go."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self.begun = 0

    def __call__(self) -> str:
        self.begun += 1
        self._open.wait()
        return "late"

    def let_go(self) -> None:
        self._open.set()


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.let_go()


def threads() -> int:
    return sum(thread.name.startswith("look-up:") for thread in threading.enumerate())


async def come_back(lookups: Lookups) -> None:
    """Wait until another look-up can be begun."""
    while True:
        try:
            await lookups.ask("again", lambda: None)
        except Hanging:
            await asyncio.sleep(0.001)
        else:
            return


async def test_answers_with_what_was_found() -> None:
    assert await Lookups(limit_seconds=30).ask("a", lambda: ["10.0.0.1"]) == ["10.0.0.1"]


async def test_one_that_hangs_counts_as_failed_and_no_other_is_begun(gate: Gate) -> None:
    lookups = Lookups(limit_seconds=0.01)
    with pytest.raises(NoAnswer, match=r"no answer within 0\.01 s"):
        await lookups.ask("a", gate)
    for _ in range(50):
        with pytest.raises(Hanging, match="the look-up of a still hangs"):
            await lookups.ask("b", gate)
    assert (gate.begun, threads()) == (1, 1)
    gate.let_go()
    await come_back(lookups)


async def test_the_loop_goes_on_while_one_hangs(gate: Gate) -> None:
    asked = asyncio.ensure_future(Lookups(limit_seconds=30).ask("a", gate))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not asked.done()
    gate.let_go()
    assert await asked == "late"


async def test_who_does_not_wait_any_more_leaves_the_thread_to_its_end(gate: Gate) -> None:
    lookups = Lookups(limit_seconds=30)
    asked = asyncio.ensure_future(lookups.ask("a", gate))
    await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    gate.let_go()
    await come_back(lookups)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "NXDOMAIN"),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure"), "SERVFAIL"),
        (socket.gaierror(socket.EAI_FAIL, "Non-recoverable failure"), "refuses"),
        (socket.gaierror(socket.EAI_NODATA, "No address"), "has no address"),
        (socket.gaierror(socket.EAI_MEMORY, "Memory allocation failure"), "Memory allocation"),
        (OSError(24, "Too many open files"), "Too many open files"),
        (UnicodeError("label too long"), "label too long"),
    ],
)
async def test_says_why_there_is_no_answer(error: Exception, said: str) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(NoAnswer, match=said):
        await Lookups(limit_seconds=30).ask("a", fail)


async def test_a_thread_that_cannot_be_begun_hinders_no_later_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lookups = Lookups(limit_seconds=30)

    def none_left(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", none_left)
        with pytest.raises(RuntimeError):
            await lookups.ask("a", lambda: None)
    assert await lookups.ask("a", lambda: 1) == 1


def test_the_system_resolves_addresses_and_its_own_name() -> None:
    assert resolved("127.0.0.9") == ["127.0.0.9"]
    assert resolved("::1") == ["::1"]
    assert {"127.0.0.1", "::1"} & set(resolved("localhost"))
