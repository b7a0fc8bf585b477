"""A forward proxy for TLS: it opens tunnels for those who know its password."""

import base64
import http.server
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class _Tunnel(http.server.BaseHTTPRequestHandler):
    server: "ConnectProxy"

    def do_CONNECT(self) -> None:
        given = self.headers.get("Proxy-Authorization", "")
        if given != f"Basic {base64.b64encode(self.server.login.encode()).decode()}":
            self.send_response(407)
            self.send_header("Proxy-Authenticate", 'Basic realm="proxy"')
            self.send_header("Content-Length", "0")
            self.send_header("Connection", "close")
            self.end_headers()
            return
        self.server.asked.append(self.path)
        host, _, port = self.path.rpartition(":")
        with socket.create_connection((host, int(port))) as store:
            self.send_response(200)
            self.end_headers()
            back = threading.Thread(target=_pass, args=(store, self.connection))
            back.start()
            _pass(self.connection, store)
            back.join()
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        return


class ConnectProxy(http.server.ThreadingHTTPServer):
    """`login`: `user:password`. `asked`: `host:port` of each tunnel."""

    def __init__(self, login: str) -> None:
        super().__init__(("127.0.0.1", 0), _Tunnel)
        self.login = login
        self.asked: list[str] = []
        self.address = f"127.0.0.1:{self.server_address[1]}"


@contextmanager
def connect_proxy(login: str) -> Iterator[ConnectProxy]:
    proxy = ConnectProxy(login)
    thread = threading.Thread(target=proxy.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield proxy
    finally:
        proxy.shutdown()
        thread.join()
        proxy.server_close()


def _pass(source: socket.socket, target: socket.socket) -> None:
    """Until one side ends; then the other side hears of it."""
    with suppress(OSError):
        while piece := source.recv(1 << 16):
            target.sendall(piece)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
