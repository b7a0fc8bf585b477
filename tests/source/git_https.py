"""A git server as hosts run it: smart HTTP over TLS, with basic authentication."""

import base64
import os
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path

from tests.source.patient_handler import PatientHandler


@dataclass(kw_only=True)
class GitHost:
    """`passwords`: by user; changed while it runs. `redirect`: where every request is sent on to.

    `asked`: the users and passwords that were shown to it. `meanwhile`: is called while a git
    that has shown one waits for the answer. `sent_bytes`: of contents.
    """

    projects: Path
    certificate: Path
    passwords: dict[str, str] = field(default_factory=dict)
    redirect: str | None = None
    asked: list[tuple[str, str]] = field(default_factory=list)
    meanwhile: Callable[[], None] = lambda: None
    port: int = 0
    sent_bytes: int = 0

    @property
    def place(self) -> str:
        return f"localhost:{self.port}"


def certificate(folder: Path, name: str, *, also: str = "") -> Path:
    """One for `localhost` that is its own authority; its key beside it, as NAME.key. `also`: an
    address that it is for, too."""
    made = folder / f"{name}.pem"
    make = f"openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN={name}"
    names = "subjectAltName=DNS:localhost" + (f",IP:{also}" if also else "")
    files = ["-addext", names, "-keyout", str(made.with_suffix(".key"))]
    subprocess.run([*make.split(), *files, "-out", str(made)], check=True, capture_output=True)
    return made


@contextmanager
def serving(host: GitHost) -> Iterator[GitHost]:
    """Answers until the block is left, on a port of the kernel's choice."""

    class Handler(_Handler):
        git_host = host

    server = ThreadingHTTPServer(("127.0.0.1", host.port), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(host.certificate, host.certificate.with_suffix(".key"))
    server.socket = context.wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    host.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield host
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(PatientHandler):
    git_host: GitHost

    def do_GET(self) -> None:
        body = self._body()
        if self.git_host.redirect is not None:
            self._answer(302, {"Location": self.git_host.redirect + self.path})
        elif not self._is_known():
            self._answer(401, {"WWW-Authenticate": 'Basic realm="git"'})
        else:
            self._backend(body)

    do_POST = do_GET

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _is_known(self) -> bool:
        if not self.git_host.passwords:
            return True
        scheme, _, told = self.headers.get("Authorization", "").partition(" ")
        if scheme != "Basic":
            return False
        user, _, password = base64.b64decode(told).decode().partition(":")
        self.git_host.asked.append((user, password))
        self.git_host.meanwhile()
        return self.git_host.passwords.get(user) == password

    def _backend(self, body: bytes) -> None:
        path, _, query = self.path.partition("?")
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.git_host.projects),
            "GIT_HTTP_EXPORT_ALL": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": "/dev/null",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "REMOTE_ADDR": "127.0.0.1",
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
        }
        done = subprocess.run(
            ["git", "http-backend"], input=body, env=environment, capture_output=True, check=False
        )
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if line)
        status = int(headers.pop("Status", "200 OK").split()[0])
        self._answer(status, headers, content)

    def _answer(self, status: int, headers: dict[str, str], content: bytes = b"") -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        self.git_host.sent_bytes += len(content)
