"""What a command says when an agent cannot be asked: always the cause, and the next step."""

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from reconciler.cli import client
from reconciler.cli.client import Agent, find_agent
from reconciler.errors import Rejected, Transient


@contextmanager
def answering(status: HTTPStatus, body: bytes, **headers: str) -> Iterator[str]:
    """The URL of a server that gives this one answer."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.do_GET()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def problem(code: str, message: str) -> bytes:
    return json.dumps({"error": {"code": code, "message": message}}).encode()


def test_an_agent_is_asked() -> None:
    with answering(HTTPStatus.OK, b'{"a": 1}', X_Served_By="node-a") as url:
        assert Agent(url=url).get("/x") == {"a": 1}


def test_a_proxy_of_the_environment_is_not_asked_for_loopback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with answering(HTTPStatus.OK, b"{}", X_Served_By="node-a") as url:
        assert Agent(url=url).get("/x") == {}


def test_any_other_server_is_no_agent() -> None:
    with (
        answering(HTTPStatus.OK, b"<html>") as url,
        pytest.raises(Rejected, match="no xgen-model agent; name an agent's URL with --server"),
    ):
        Agent(url=url).get("/x")


def test_what_is_for_the_agents_own_node_says_so() -> None:
    body = problem("not_on_this_host", "cannot do that for 192.0.2.7")
    with (
        answering(HTTPStatus.FORBIDDEN, body, X_Served_By="node-a") as url,
        pytest.raises(Rejected, match=r"192\.0\.2\.7; run the command on the agent's own node"),
    ):
        Agent(url=url).get("/x")


def test_an_older_agent_is_told_from_a_missing_model() -> None:
    body = problem("unknown_path", "cannot find /x")
    with (
        answering(HTTPStatus.NOT_FOUND, body, X_Served_By="node-a") as url,
        pytest.raises(Rejected, match="it is an older release than this command"),
    ):
        Agent(url=url).get("/x")


def test_nobody_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    with pytest.raises(Transient, match="connection refused; is it running there"):
        Agent(url=f"http://127.0.0.1:{port}").get("/x")


def test_one_that_takes_connections_and_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "ANSWER_SECONDS", 0.2)
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        pytest.raises(Transient, match="it takes too long to answer"),
    ):
        Agent(url=f"http://127.0.0.1:{server.getsockname()[1]}").get("/x")


def test_what_a_killed_agent_left_is_told(tmp_path: Path) -> None:
    left = {"url": "http://127.0.0.1:9", "pid": 2**22 + 1}
    (tmp_path / "agent.json").write_text(json.dumps(left), encoding="utf-8")

    with pytest.raises(Transient, match=r"left that has ended \(pid 4194305\); start one with"):
        find_agent(None, tmp_path).get("/x")


def test_no_agent_is_named(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match="or name one with --server URL or --data-dir"):
        find_agent(None, tmp_path)


@pytest.mark.parametrize(
    ("given", "url"),
    [
        ("gpu-1:8000", "http://gpu-1:8000"),
        ("http://gpu-1:8000/", "http://gpu-1:8000"),
        ("https://gpu-1", "https://gpu-1"),
    ],
)
def test_a_server_may_be_named_without_a_scheme(tmp_path: Path, given: str, url: str) -> None:
    assert find_agent(given, tmp_path).url == url


@pytest.mark.parametrize("given", ["ftp://gpu-1", "http://", "http://[::1", "http://a:99999"])
def test_refuses_what_is_no_url(tmp_path: Path, given: str) -> None:
    with pytest.raises(Rejected, match="cannot use --server"):
        find_agent(given, tmp_path)


def test_an_agent_that_cannot_rehearse_is_an_older_release() -> None:
    body = problem("method_not_allowed", "cannot POST /api/management/plan: allowed is GET")
    with (
        answering(HTTPStatus.METHOD_NOT_ALLOWED, body, X_Served_By="node-a") as url,
        pytest.raises(Rejected, match="does not know POST /api/management/plan; it is an older"),
    ):
        Agent(url=url).post("/api/management/plan", {})
