import contextlib
import os
import socket

import pytest

from reconciler.apply.ports import PROMISE_SECONDS, Ports
from reconciler.errors import Transient

HOST = "127.0.0.1"


@pytest.fixture
def free() -> range:
    """Three ports in a row that nothing is bound to; below the kernel's ephemeral range."""
    for first in range(30_000 + os.getpid() % 900, 32_000, 3):
        with contextlib.suppress(OSError), contextlib.ExitStack() as sockets:
            for port in range(first, first + 3):
                sockets.enter_context(bound(port, reuse=False))
            return range(first, first + 3)
    raise AssertionError("no three free ports in a row")


def bound(port: int, *, reuse: bool = True) -> socket.socket:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse)
    try:
        server.bind((HOST, port))
    except OSError:
        server.close()
        raise
    return server


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_passes_over_a_port_that_is_bound_but_not_yet_listened_on(free: range) -> None:
    """Scenarios 20 and 24: gpustack#4557, #5181, #3548. vLLM binds long before it listens."""
    ports = Ports(free[:2], host=HOST, clock=Clock())
    with bound(free[0]):
        assert ports.take(used=()) == free[1]


def test_two_starts_at_a_time_get_two_ports(free: range) -> None:
    ports = Ports(free[:2], host=HOST, clock=Clock())

    assert {ports.take(used=()), ports.take(used=())} == set(free[:2])


def test_a_port_rests_before_it_is_given_again(free: range) -> None:
    """Scenario 22: gpustack#4063: a cached old port after a rebuild."""
    ports = Ports(free[:3], host=HOST, clock=Clock())
    first = ports.take(used=())
    ports.release(first)

    assert ports.take(used=()) == free[1]


def test_a_promise_that_nobody_kept_ends(free: range) -> None:
    clock = Clock()
    ports = Ports(free[:1], host=HOST, clock=clock)
    ports.take(used=())

    clock.now = PROMISE_SECONDS + 1

    assert ports.take(used=()) == free[0]


def test_says_what_stands_in_the_way_of_a_port(free: range) -> None:
    """Scenario 24: gpustack#3548: a conflict that nobody says."""
    ports = Ports(free[:2], host=HOST, clock=Clock())
    message = f"no free port in {free[0]}-{free[1]}: 1 are used by backends, 1 are bound otherwise"
    with bound(free[0]), pytest.raises(Transient, match=message):
        ports.take(used={free[1]})
