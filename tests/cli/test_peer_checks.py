"""`doctor` on the other agents of the cluster."""

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from reconciler.cli.checks.finding import Finding, Level
from reconciler.cli.checks.peers import peer_findings, token_findings
from reconciler.plan.peering_text import parse_peering

ANYWHERE = ("0.0.0.0", 1)


class _Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/healthz" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def port() -> Iterator[int]:
    """Of one that answers as an agent does, at 127.0.0.2."""
    server = ThreadingHTTPServer(("127.0.0.2", 0), _Healthy)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)


def found(
    peers: str, listen: tuple[str, int] = ANYWHERE, *, holder: int | None = 7
) -> list[Finding]:
    return list(peer_findings(parse_peering(peers), listen, None, holder=holder))


def test_a_node_without_peers_is_alone() -> None:
    (finding,) = peer_findings(None, ANYWHERE, None, holder=None)
    assert finding.level is Level.SKIP
    assert "alone" in finding.said


def test_agents_that_answer_are_fine(port: int) -> None:
    (finding,) = found(f"127.0.0.2:{port},127.0.0.1:{port}", ("127.0.0.1", port))
    assert (finding.level, finding.said) == (Level.OK, "an answer from 1 other address")


def test_who_does_not_answer_is_named(port: int) -> None:
    (finding,) = found(f"127.0.0.2:{port},127.0.0.3:{port}")
    assert finding.level is Level.WARN
    assert f"no answer from 1 of 2 other addresses: 127.0.0.3:{port}:" in finding.said


def test_a_name_that_leads_to_this_node_alone_is_fine() -> None:
    (finding,) = found("localhost:1")
    assert (finding.level, finding.said) == (
        Level.OK,
        "localhost leads to 0 other addresses and this node",
    )


def test_a_name_that_cannot_be_looked_up_fails() -> None:
    (finding,) = found("no-such-host.invalid:8000")
    assert finding.level is Level.FAIL
    assert "cannot look up no-such-host.invalid: " in finding.said


def test_a_name_that_leads_to_one_other_address_alone_is_no_headless_service() -> None:
    listen = ("198.51.100.1", 8000)
    (finding,) = found("dns:localhost:8000", listen)
    assert finding.level is Level.FAIL
    assert "clusterIP: None" in str(finding.next)


def test_an_address_that_others_cannot_reach_fails() -> None:
    first, *_ = found("198.51.100.1:1", ("127.0.0.1", 8000))
    assert first.level is Level.FAIL
    assert first.next == "listen on 0.0.0.0:8000 or [::]:8000"


def test_a_cluster_token_is_read_and_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "token"
    assert list(token_findings(None)) == []
    (finding,) = token_findings(file)
    assert finding.level is Level.FAIL
    file.write_text("sesame\n")
    (finding,) = token_findings(file)
    assert finding.level is Level.OK
    assert "sesame" not in finding.said


def test_localhost_is_looked_up_as_the_system_does() -> None:
    """What the tests above rely on."""
    assert socket.gethostbyname("localhost") == "127.0.0.1"
