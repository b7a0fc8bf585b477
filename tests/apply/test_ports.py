import socket

import pytest

from reconciler.apply.ports import PROMISE_SECONDS, Ports
from reconciler.errors import Transient
from tests.apply.world import PORTS

HOST = "127.0.0.1"


def bound(port: int) -> socket.socket:
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind((HOST, port))
    return server


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_passes_over_a_port_that_is_bound_but_not_yet_listened_on() -> None:
    """Scenarios 20 and 24: gpustack#4557, #5181, #3548. vLLM binds long before it listens."""
    ports = Ports(PORTS[:2], host=HOST, clock=Clock())
    with bound(PORTS[0]):
        assert ports.take(used=()) == PORTS[1]


def test_two_starts_at_a_time_get_two_ports() -> None:
    ports = Ports(PORTS[:2], host=HOST, clock=Clock())

    assert {ports.take(used=()), ports.take(used=())} == set(PORTS[:2])


def test_a_port_rests_before_it_is_given_again() -> None:
    """Scenario 22: gpustack#4063: a cached old port after a rebuild."""
    ports = Ports(PORTS[:3], host=HOST, clock=Clock())
    first = ports.take(used=())
    ports.release(first)

    assert ports.take(used=()) == PORTS[1]


def test_a_promise_that_nobody_kept_ends() -> None:
    clock = Clock()
    ports = Ports(PORTS[:1], host=HOST, clock=clock)
    ports.take(used=())

    clock.now = PROMISE_SECONDS + 1

    assert ports.take(used=()) == PORTS[0]


def test_says_what_stands_in_the_way_of_a_port() -> None:
    """Scenario 24: gpustack#3548: a conflict that nobody says."""
    ports = Ports(PORTS[:2], host=HOST, clock=Clock())
    message = (
        f"no free port in {PORTS[0]}-{PORTS[1]}: 1 are used by backends, 1 are bound otherwise"
    )
    with bound(PORTS[0]), pytest.raises(Transient, match=message):
        ports.take(used={PORTS[1]})
