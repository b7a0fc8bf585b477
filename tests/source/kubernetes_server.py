"""A Kubernetes API server for ConfigMaps and Events: the real kubectl and ours ask it.

It misbehaves as the real one, or what stands before it, may: history that is gone, watches that
are cut in the middle of an event, other tokens, refusals, no answer, nobody there.
"""

import json
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from ruamel.yaml import YAML

from tests.source.kubernetes_discovery import DOCUMENTS
from tests.source.kubernetes_store import KINDS, Object, Refused, Store, as_line, metadata_of
from tests.source.patient_handler import PatientHandler

_PATH = re.compile(
    r"/api/v1(?:/namespaces/(?P<namespace>[^/]+))?/(?P<resource>configmaps|events|pods)(?:/(?P<name>[^/]+))?"
)


class Asked(NamedTuple):
    """What is asked for. `namespace`: None: all. `name`: None: no single one."""

    verb: str
    resource: str
    namespace: str | None
    name: str | None


@dataclass(kw_only=True)
class Server:
    """`clients`: the authority of the certificates that clients must have; None: they need none.
    `tokens`: who may come; None: everybody. `forbidden`: pairs of verb and resource. `failing`:
    what every request is answered with. `refuse_watches`: what every watch is. `cut_events`: how
    many events are still to be cut off in the middle. `deaf`: watches hear of nothing and do not
    end. `ending`: they end at once. `silent`: no answer at all, to anything.
    `gone_as`: how a version is told that is too old: `status` or `event`. `rights`: whether a token
    may do what it asks for; None: all may. `address`: where it listens.

    `bookmarks`: how many were told. `asked`: the verbs that were asked for, with the token shown.
    """

    store: Store = field(default_factory=Store)
    certificate: Path | None = None
    clients: Path | None = None
    tokens: set[str] | None = None
    forbidden: set[tuple[str, str]] = field(default_factory=set)
    failing: Refused | None = None
    refuse_watches: Refused | None = None
    cut_events: int = 0
    deaf: bool = False
    ending: bool = False
    silent: bool = False
    gone_as: str = "event"
    rights: Callable[[str, Asked], bool] | None = None
    address: str = "127.0.0.1"
    bookmark_seconds: float = 5.0
    asked: list[tuple[str, str]] = field(default_factory=list)
    port: int = 0
    watching: int = 0
    bookmarks: int = 0
    generation: int = 0
    _http: ThreadingHTTPServer | None = field(default=None, repr=False)
    _thread: threading.Thread | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"http{'s' if self.certificate else ''}://localhost:{self.port}"

    @property
    def is_up(self) -> bool:
        """A connection that was kept outlives its listener."""
        return self._http is not None

    def count(self, verb: str) -> int:
        return sum(asked == verb for asked, _ in self.asked)

    def drop(self) -> None:
        """End every watch."""
        with self.store.changed:
            self.generation += 1
            self.store.changed.notify_all()

    def start(self) -> None:
        """On the port it had before, if it had one."""

        class Handler(_Handler):
            api = self

        http = ThreadingHTTPServer((self.address, self.port), Handler)
        if self.certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate, self.certificate.with_suffix(".key"))
            if self.clients is not None:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(self.clients)
            http.socket = context.wrap_socket(
                http.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port = http.server_address[1]
        self._http = http
        self._thread = threading.Thread(target=http.serve_forever, args=(0.02,))
        self._thread.start()

    def stop(self) -> None:
        """Nobody listens any more, and every watch ends."""
        if self._http is not None and self._thread is not None:
            http, self._http = self._http, None
            self.silent = False
            self.drop()
            http.shutdown()
            self._thread.join()
            http.server_close()


@contextmanager
def serving(server: Server | None = None) -> Iterator[Server]:
    server = server or Server()
    server.start()
    try:
        yield server
    finally:
        server.stop()


class _Handler(PatientHandler):
    api: Server

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if not self.api.is_up:
            raise ConnectionAbortedError
        try:
            place = _PATH.fullmatch(url.path)
            if place is None:
                self._say(200, _document(url.path))
                return
            verb = _verb(self.command, place, query)
            self._admit(verb, place, query)
            if verb == "watch":
                self._watch(place, query)
            else:
                self._say(201 if verb == "create" else 200, self._do(verb, place, query, raw))
        except Refused as exc:
            self._say(exc.code, exc.body, wait=exc.wait)

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _admit(self, verb: str, place: re.Match[str], query: dict[str, str]) -> None:
        api, resource = self.api, place["resource"]
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        api.asked.append((verb, token))
        while api.silent:
            time.sleep(0.01)
        if api.failing is not None:
            raise api.failing
        if api.tokens is not None and token not in api.tokens:
            raise Refused(401, "Unauthorized", "Unauthorized")
        asked = Asked(verb, resource, place["namespace"], place["name"] or _only_one(query))
        may = api.rights is None or api.rights(token, asked)
        if (verb, resource) in api.forbidden or not may:
            raise Refused(
                403,
                "Forbidden",
                f'{resource} is forbidden: User "system:serviceaccount:models:agent" cannot {verb} '
                f'resource "{resource}" in API group "" in the namespace "models"',
            )
        if verb == "watch" and api.refuse_watches is not None:
            raise api.refuse_watches

    def _do(self, verb: str, place: re.Match[str], query: dict[str, str], raw: bytes) -> Object:
        store, resource, namespace = self.api.store, place["resource"], place["namespace"]
        name, body = place["name"], self._body(raw)
        with store.changed:
            match verb:
                case "patch":
                    if "apply-patch" in self.headers.get("Content-Type", ""):
                        return store.apply(resource, namespace, name, body)
                    return store.patch(resource, namespace, name, body)
                case "list":
                    return {
                        "kind": f"{KINDS[resource]}List",
                        "apiVersion": "v1",
                        "metadata": {"resourceVersion": str(store.version)},
                        "items": [
                            each
                            for (kind, where, _), each in store.objects.items()
                            if kind == resource
                            and namespace in (None, where)
                            and _chosen(each, query)
                        ],
                    }
                case "get":
                    return store.get(resource, namespace, name)
                case "create" if "dryRun" in query:
                    return body
                case "create":
                    return store.create(resource, namespace, body)
                case "update":
                    return store.replace(resource, namespace, name, body)
                case _:
                    store.delete(resource, namespace, name)
                    return {"kind": "Status", "apiVersion": "v1", "status": "Success"}

    def _body(self, raw: bytes) -> Object:
        kind = self.headers.get("Content-Type", "")
        if raw and ("protobuf" in kind or "cbor" in kind or "json-patch" in kind):
            raise Refused(415, "UnsupportedMediaType", f"cannot take {kind}")
        try:
            body = json.loads(raw or b"{}")
        except ValueError:
            body = YAML(typ="safe", pure=True).load(raw)
        assert isinstance(body, dict)
        return body

    def _watch(self, place: re.Match[str], query: dict[str, str]) -> None:
        """Until its time is over, or it is dropped."""
        api, store = self.api, self.api.store
        position = int(query.get("resourceVersion") or 0)
        with store.changed:
            if api.gone_as == "status" and position < store.oldest:
                raise _gone(position, store.oldest)
            generation = api.generation
            api.watching += 1
            store.changed.notify_all()
        seconds = 0.0 if api.ending else float(query.get("timeoutSeconds", 300))
        until = time.monotonic() + seconds
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            while generation == api.generation and (api.deaf or time.monotonic() < until):
                if api.deaf:
                    with store.changed:
                        store.changed.wait(0.02)
                    continue
                lines, position, ended = self._next(place, query, position, until)
                for line in lines:
                    self._chunk(line)
                if ended:
                    break
            self.wfile.write(b"0\r\n\r\n")
        finally:
            with store.changed:
                api.watching -= 1
                store.changed.notify_all()

    def _next(
        self, place: re.Match[str], query: dict[str, str], position: int, until: float
    ) -> tuple[list[bytes], int, bool]:
        """What is to be said after `position`, waiting a little for it; and whether it is all."""
        api, store = self.api, self.api.store
        with store.changed:
            if position < store.oldest:
                return [as_line("ERROR", _gone(position, store.oldest).body)], position, True
            if store.version <= position:
                generation = api.generation
                left = min(api.bookmark_seconds, until - time.monotonic())
                store.changed.wait(max(0.0, left))
                if generation != api.generation:
                    return [], position, False
            new = [each for each in store.log if each[0] > position]
            if not new:
                return self._bookmark(query, position), position, False
        alone = "as=PartialObjectMetadata" in self.headers.get("Accept", "")
        lines = [
            as_line(what, metadata_of(written) if alone else written)
            for _, what, resource, written in new
            if resource == place["resource"]
            and place["namespace"] in (None, written["metadata"]["namespace"])
            and _chosen(written, query)
        ]
        return lines, new[-1][0], False

    def _bookmark(self, query: dict[str, str], position: int) -> list[bytes]:
        if query.get("allowWatchBookmarks") not in ("true", "1"):
            return []
        self.api.bookmarks += 1
        mark = {"kind": "ConfigMap", "metadata": {"resourceVersion": str(position)}}
        return [as_line("BOOKMARK", mark)]

    def _chunk(self, line: bytes) -> None:
        if self.api.cut_events > 0:
            self.api.cut_events -= 1
            half = line[: len(line) // 2]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(half), half))
            raise ConnectionAbortedError
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))

    def _say(self, status: int, body: Object, *, wait: int | None = None) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        if wait is not None:
            self.send_header("Retry-After", str(wait))
        self.end_headers()
        self.wfile.write(content)


def _only_one(query: dict[str, str]) -> str | None:
    """The one object that a list or a watch is of, which its authorization goes by."""
    found = re.search(r"(?:^|,)metadata\.name==?([^,]+)", query.get("fieldSelector", ""))
    return found[1] if found else None


def _verb(method: str, place: re.Match[str], query: dict[str, str]) -> str:
    if method == "GET":
        watches = query.get("watch") in ("1", "true")
        return "get" if place["name"] else "watch" if watches else "list"
    return {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}[method]


def _chosen(each: Object, query: dict[str, str]) -> bool:
    for term in filter(None, query.get("fieldSelector", "").split(",")):
        path, _, value = term.replace("==", "=").partition("=")
        found: object = each
        for part in path.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        if str(found) != value:
            return False
    labels = each["metadata"].get("labels") or {}
    wanted = filter(None, query.get("labelSelector", "").split(","))
    return all(labels.get(name) == value for name, _, value in (w.partition("=") for w in wanted))


def _gone(position: int, oldest: int) -> Refused:
    return Refused(410, "Expired", f"too old resource version: {position} ({oldest})")


def _document(path: str) -> Object:
    if path not in DOCUMENTS:
        raise Refused(404, "NotFound", "the server could not find the requested resource")
    return DOCUMENTS[path]
