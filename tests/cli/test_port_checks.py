"""What `doctor` says of the agent's own port."""

import socket
from collections.abc import Iterator

import pytest

from reconciler.cli.checks.finding import Finding, Level
from reconciler.cli.checks.ports import port_findings


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket(socket.AF_INET6) as listener:
        listener.bind(("::1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def looked(port: int, *, server: str | None) -> Finding:
    listen, *_ = port_findings(("::1", port), range(1, 2), holder=None, server=server)
    return listen


@pytest.mark.parametrize("server", [None, "http://[::1]", "http://127.0.0.1:{}", "http://[::1]:x"])
def test_a_port_that_another_has_is_a_fault(taken: int, server: str | None) -> None:
    found = looked(taken, server=server.format(taken) if server is not None else None)
    assert (found.level, found.said) == (Level.FAIL, f"[::1]:{taken} is taken")


@pytest.mark.parametrize("server", ["http://[::1]:{}/", "[0:0::1]:{}"])
def test_a_port_that_the_agent_has_which_is_asked_is_none(taken: int, server: str) -> None:
    found = looked(taken, server=server.format(taken))
    assert (found.level, found.said.partition(" is taken")[0]) == (Level.OK, f"[::1]:{taken}")
