import contextlib
import os
import socket
from collections.abc import Callable, Iterator

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


MakePorts = Callable[..., Ports]


@pytest.fixture
def make_ports() -> Iterator[MakePorts]:
    """Of one agent each."""
    with contextlib.ExitStack() as stack:

        def make(ports: range, clock: Callable[[], float] | None = None) -> Ports:
            made = Ports(ports, host=HOST, clock=clock or Clock())
            stack.callback(made.close)
            return made

        yield make


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_passes_over_a_port_that_is_bound_but_not_yet_listened_on(
    free: range, make_ports: MakePorts
) -> None:
    """Scenarios 20 and 24: gpustack#4557, #5181, #3548. vLLM binds long before it listens."""
    ports = make_ports(free[:2])
    with bound(free[0]):
        assert ports.take(used=()) == free[1]


def test_two_starts_at_a_time_get_two_ports(free: range, make_ports: MakePorts) -> None:
    ports = make_ports(free[:2])

    assert {ports.take(used=()), ports.take(used=())} == set(free[:2])


def test_a_port_rests_before_it_is_given_again(free: range, make_ports: MakePorts) -> None:
    """Scenario 22: gpustack#4063: a cached old port after a rebuild."""
    ports = make_ports(free[:3])
    first = ports.take(used=())
    ports.give_back(first)

    assert ports.take(used=()) == free[1]


def test_a_promise_that_nobody_kept_ends(free: range, make_ports: MakePorts) -> None:
    clock = Clock()
    ports = make_ports(free[:1], clock)
    ports.take(used=())

    clock.now = PROMISE_SECONDS + 1

    assert ports.take(used=()) == free[0]


def test_says_what_stands_in_the_way_of_a_port(free: range, make_ports: MakePorts) -> None:
    """Scenario 24: gpustack#3548: a conflict that nobody says."""
    ports = make_ports(free[:2])
    message = f"no free port in {free[0]}-{free[1]}: 1 are used by backends, 1 are bound otherwise"
    with bound(free[0]), pytest.raises(Transient, match=message):
        ports.take(used={free[1]})


def test_what_one_agent_was_given_another_one_of_the_host_is_not(
    free: range, make_ports: MakePorts
) -> None:
    """Though nothing is bound to it yet: a backend needs seconds until it binds."""
    ours, theirs = make_ports(free[:2]), make_ports(free[:2])

    first, second = ours.take(used=()), theirs.take(used=())

    assert {first, second} == set(free[:2])
    with pytest.raises(Transient):
        ours.take(used=())


def test_a_port_is_there_for_all_agents_once_its_backend_is_gone(
    free: range, make_ports: MakePorts
) -> None:
    ours, theirs = make_ports(free[:1]), make_ports(free[:1])
    port = ours.take(used=())
    with ours.starting(port):
        pass
    with pytest.raises(Transient):
        theirs.take(used=())

    ours.give_back(port)

    assert theirs.take(used=()) == port


def test_what_an_agent_before_has_started_keeps_its_port(
    free: range, make_ports: MakePorts
) -> None:
    """Bound or not: vLLM reads its libraries for ten seconds first, and the agent was restarted."""
    ours, theirs = make_ports(free[:1]), make_ports(free[:1])
    ours.keep(free[0])
    ours.keep(free[0])
    with pytest.raises(Transient):
        theirs.take(used=())

    ours.give_back(free[0])

    assert theirs.take(used=()) == free[0]


def test_a_start_that_failed_leaves_its_port_to_others(free: range, make_ports: MakePorts) -> None:
    ours, theirs = make_ports(free[:1]), make_ports(free[:1])
    port = ours.take(used=())
    with contextlib.suppress(OSError), ours.starting(port):
        raise FileNotFoundError

    assert theirs.take(used=()) == port
