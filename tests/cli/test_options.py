"""What the flags accept."""

import pytest
import typer

from reconciler.cli.options import listen_address, port_range


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8000", ("127.0.0.1", 8000)),
        (":8000", ("0.0.0.0", 8000)),
        ("[::1]:9", ("::1", 9)),
        ("localhost:0", ("localhost", 0)),
    ],
)
def test_listen_addresses(text: str, address: tuple[str, int]) -> None:
    assert listen_address(text) == address


@pytest.mark.parametrize("text", ["8000", "host:", "host:x", "host:70000", ""])
def test_refuses_what_is_no_address(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="HOST:PORT"):
        listen_address(text)


def test_port_ranges_include_both_ends() -> None:
    assert port_range("18000-18001") == range(18000, 18002)


@pytest.mark.parametrize("text", ["18000", "2-1", "0-5", "1-70000", "a-b"])
def test_refuses_what_is_no_port_range(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="FIRST-LAST"):
        port_range(text)


@pytest.mark.parametrize("text", ["40000-40010", "30000-33000", "60999-61005"])
def test_refuses_ports_that_outgoing_connections_use(text: str) -> None:
    """Scenario 20: gpustack#4557, #5181."""
    with pytest.raises(typer.BadParameter, match="outgoing"):
        port_range(text)
