"""A hub of models that the real huggingface_hub takes for Hugging Face: the routes that it asks.

GET      /api/models/ORG/NAME[/revision/REV]     the commit, the card
GET      /api/models/ORG/NAME/tree/COMMIT        the files, with sizes and digests
GET|HEAD /ORG/NAME/resolve/COMMIT/FILE           a file; ranges are answered
"""

import hashlib
import json
import re
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

_LFS = (".gguf", ".safetensors", ".bin")
_BLOCK_BYTES = 16 * 1024
_RANGE = re.compile(r"bytes=(\d+)-")


@dataclass(kw_only=True)
class Repo:
    """`revisions`: names that stand for `commit`. `refused`: (status, X-Error-Code) of each answer.

    `needs_token`: without it, files are gated; the listing is public, as it is at Hugging Face.
    `sent_instead`: other bytes than the listed ones, by path; `sizes`: other sizes in the listing.
    """

    files: Mapping[str, bytes]
    commit: str = "a" * 40
    revisions: tuple[str, ...] = ("main",)
    licence: str | None = "apache-2.0"
    refused: tuple[int, str] | None = None
    needs_token: str | None = None
    sent_instead: dict[str, bytes] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)


@dataclass(kw_only=True)
class Asked:
    method: str
    path: str
    token: str | None
    range: str | None


@dataclass(kw_only=True)
class FakeHub:
    """`requests`: what was asked, and by whom. While `gate` is cleared, no file gets past `held_at`
    bytes; `held` says that one waits there. `cuts`: after so many bytes of a file the connection is
    cut, each of them once. `ranges`: whether they are answered. `retry_after`, `error_message`: of
    each refusal.
    """

    port: int = 0
    repos: dict[str, Repo] = field(default_factory=dict)
    requests: list[Asked] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    held: threading.Event = field(default_factory=threading.Event)
    held_at: int = _BLOCK_BYTES
    cuts: list[int] = field(default_factory=list)
    ranges: bool = True
    retry_after: str | None = None
    error_message: str | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def environment(self) -> dict[str, str]:
        """For whoever is to ask it. No retries of seconds, no proxy, no other cache or token."""
        return {
            "HF_ENDPOINT": self.endpoint,
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }

    def files_asked(self, suffix: str = "") -> list[str]:
        """The files that were asked for with GET."""
        return [
            each.path.rpartition("/")[2]
            for each in self.requests
            if each.method == "GET" and "/resolve/" in each.path and each.path.endswith(suffix)
        ]

    def ranges_asked(self, suffix: str) -> list[str | None]:
        """Of which part of such a file, each time; None: of all of it."""
        return [
            each.range
            for each in self.requests
            if each.method == "GET" and "/resolve/" in each.path and each.path.endswith(suffix)
        ]

    def children(self) -> list[int]:
        """The living processes of imports that ask it."""
        return [
            int(folder.name)
            for folder in Path("/proc").glob("[0-9]*")
            if b"huggingface_child" in _read(folder / "cmdline")
            and self.endpoint.encode() in _read(folder / "environ")
        ]


def _read(path: Path) -> bytes:
    """Nothing of a process that is gone."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


@contextmanager
def serve_fake_hub(repos: Mapping[str, Repo]) -> Iterator[FakeHub]:
    hub = FakeHub(repos=dict(repos))
    hub.gate.set()

    class Handler(_Handler):
        fake = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.port = server.server_port
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        hub.gate.set()
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeHub

    def log_message(self, *_: object) -> None:
        return

    def do_HEAD(self) -> None:
        self._go()

    def do_GET(self) -> None:
        self._go()

    def _go(self) -> None:
        path = unquote(urlsplit(self.path).path)
        authorization = self.headers.get("Authorization", "")
        token = authorization.removeprefix("Bearer ") or None
        self.fake.requests.append(
            Asked(method=self.command, path=path, token=token, range=self.headers.get("Range"))
        )
        parts = path.strip("/").split("/")
        is_api = parts[:2] == ["api", "models"]
        name = "/".join(parts[2:4] if is_api else parts[:2])
        rest = parts[4:] if is_api else parts[2:]
        repo = self.fake.repos.get(name)
        if repo is None:
            self._refuse(404, "RepoNotFound")
        elif repo.refused is not None:
            self._refuse(*repo.refused)
        elif is_api:
            self._api(name, repo, rest)
        elif repo.needs_token not in (None, token):
            self._refuse(401 if token is None else 403, "GatedRepo")
        else:
            self._file(repo, "/".join(rest[2:]))

    def _api(self, name: str, repo: Repo, rest: list[str]) -> None:
        revision = "/".join(rest[1:]) if rest else "main"
        if revision not in (*repo.revisions, repo.commit):
            self._refuse(404, "RevisionNotFound")
        elif rest[:1] == ["tree"]:
            self._json([_entry(repo, path, content) for path, content in repo.files.items()])
        else:
            card = {} if repo.licence is None else {"license": repo.licence}
            siblings = [{"rfilename": path} for path in repo.files]
            self._json({"id": name, "sha": repo.commit, "siblings": siblings, "cardData": card})

    def _file(self, repo: Repo, path: str) -> None:
        if path not in repo.files:
            self._refuse(404, "EntryNotFound")
            return
        content = repo.sent_instead.get(path, repo.files[path])
        found = _RANGE.match(self.headers.get("Range", "")) if self.fake.ranges else None
        first = int(found[1]) if found else 0
        self.send_response(206 if found else 200)
        if found:
            self.send_header("Content-Range", f"bytes {first}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - first))
        self.send_header("X-Repo-Commit", repo.commit)
        self.send_header("ETag", f'"{_etag(path, repo.files[path])}"')
        self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        if self.command == "GET":
            self._send(content[first:])

    def _send(self, content: bytes) -> None:
        try:
            for start in range(0, len(content), _BLOCK_BYTES):
                if self.fake.cuts and start >= self.fake.cuts[0]:
                    del self.fake.cuts[0]
                    self.wfile.flush()
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                if start >= self.fake.held_at and not self.fake.gate.is_set():
                    self.wfile.flush()
                    self.fake.held.set()
                    self.fake.gate.wait()
                self.wfile.write(content[start : start + _BLOCK_BYTES])
        except ConnectionError:
            self.close_connection = True  # the client was killed

    def _json(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def _refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        if self.fake.error_message is not None:
            self.send_header("X-Error-Message", self.fake.error_message)
        if self.fake.retry_after is not None:
            self.send_header("Retry-After", self.fake.retry_after)
        self.send_header("Content-Length", "0")
        self.end_headers()


def _entry(repo: Repo, path: str, content: bytes) -> dict[str, object]:
    size = repo.sizes.get(path, len(content))
    entry: dict[str, object] = {"type": "file", "path": path, "size": size}
    if path.endswith(_LFS):
        pointer = {"oid": _etag(path, content), "size": size, "pointerSize": 130}
        return entry | {"oid": "0" * 40, "lfs": pointer}
    return entry | {"oid": _etag(path, content)}


def _etag(path: str, content: bytes) -> str:
    if path.endswith(_LFS):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
