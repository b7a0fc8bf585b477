"""Against a real S3 server: rclone serve s3."""

import dataclasses
import hashlib
import http.server
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest
import urllib3

from reconciler.errors import Damaged, Rejected, Transient, XgenError
from reconciler.hub.proxies import Proxies
from reconciler.hub.s3 import S3Store
from reconciler.hub.s3_settings import S3Settings
from tests.hub.reading import read_all
from tests.s3_server import ACCESS_KEY, KEYS, SECRET_KEY, S3Server, s3_store
from tests.tcp_relay import relay_to

BIG = os.urandom(3 * 1024 * 1024 + 17)


def only(store: S3Store, prefix: str) -> tuple[str, ...]:
    return tuple(item.path for item in store.objects(prefix))


@pytest.fixture
def store(server: S3Server) -> Iterator[S3Store]:
    with s3_store(server.settings()) as opened:
        yield opened


def test_lists_a_prefix_with_sizes_and_md5(server: S3Server, store: S3Store) -> None:
    server.put("models", "gguf/list_a/x.gguf", b"weights")
    server.put("models", "gguf/list_a/sub dir/größe+1.json", b"{}")

    config, weights = store.objects("gguf/list_a")

    assert (config.path, weights.path) == ("sub dir/größe+1.json", "x.gguf")
    assert (weights.key, weights.size_bytes) == ("gguf/list_a/x.gguf", 7)
    assert weights.md5 == weights.version == hashlib.md5(b"weights").hexdigest()


def test_a_prefix_is_no_beginning_of_another(server: S3Server, store: S3Store) -> None:
    server.put("models", "gguf/match_ab/x.gguf", b"1")
    server.put("models", "gguf/match_abc/y.gguf", b"1")

    assert only(store, "gguf/match_ab") == ("x.gguf",)
    assert only(store, "gguf/match_a") == ()


@pytest.mark.parametrize("prefix", ["gguf", "gguf/", "gguf/a/b", "/gguf/a", "gguf/..", "../gguf"])
def test_a_prefix_has_exactly_two_components(store: S3Store, prefix: str) -> None:
    with pytest.raises(Rejected, match="cannot use hub prefix"):
        store.objects(prefix)


def test_lists_all_prefixes_below_a_base(server: S3Server) -> None:
    server.put("models", "team/a/gguf/one_x/x.gguf", b"1")
    server.put("models", "team/a/huggingface/two_y@main/config.json", b"1")
    settings = dataclasses.replace(server.settings(), base="team/a")

    with s3_store(settings) as store:
        assert store.prefixes() == ("gguf/one_x", "huggingface/two_y@main")
        assert only(store, "gguf/one_x") == ("x.gguf",)


def test_reads_an_object_and_tells_how_far_it_is(server: S3Server, store: S3Store) -> None:
    server.put("models", "gguf/read_a/x.gguf", BIG)
    (stored,) = store.objects("gguf/read_a")
    told: list[int] = []

    assert read_all(store, stored, on_bytes=told.append) == BIG
    assert told == sorted(told)
    assert told[-1] == len(BIG)
    assert len(told) > 1


def test_reads_an_empty_object(server: S3Server, store: S3Store) -> None:
    server.put("models", "gguf/read_empty/x.json", b"")
    (stored,) = store.objects("gguf/read_empty")

    assert read_all(store, stored) == b""


def test_continues_after_a_cut_without_counting_twice(server: S3Server) -> None:
    """gpustack#2582, #312 (scenarios 26, 27)."""
    server.put("models", "gguf/cut_a/x.gguf", BIG)
    told: list[int] = []
    with relay_to(server.port) as relay, s3_store(server.settings(endpoint=relay.endpoint)) as cut:
        (stored,) = cut.objects("gguf/cut_a")
        relay.cut_after = 1024 * 1024
        assert read_all(cut, stored, on_bytes=told.append) == BIG

    assert told == sorted(told)
    assert told[-1] == len(BIG)


def test_gives_up_when_cuts_leave_no_progress(server: S3Server) -> None:
    server.put("models", "gguf/cut_b/x.gguf", BIG)
    with relay_to(server.port) as relay, s3_store(server.settings(endpoint=relay.endpoint)) as cut:
        (stored,) = cut.objects("gguf/cut_b")
        relay.cut_after = 100  # within the header of the answer
        with pytest.raises(Transient, match=r"cannot fetch gguf/cut_b/x\.gguf from s3://models at"):
            read_all(cut, stored)


def test_notices_an_object_that_changed_since_it_was_listed(
    server: S3Server, store: S3Store
) -> None:
    path = server.put("models", "gguf/change_a/x.gguf", b"old content")
    (stored,) = store.objects("gguf/change_a")
    path.write_bytes(b"new content")

    with pytest.raises(Transient, match="it changed while it was fetched"):
        read_all(store, stored)


def test_notices_an_object_that_changes_between_two_parts(server: S3Server) -> None:
    path = server.put("models", "gguf/change_b/x.gguf", BIG)
    with relay_to(server.port) as relay, s3_store(server.settings(endpoint=relay.endpoint)) as cut:
        (stored,) = cut.objects("gguf/change_b")
        relay.cut_after = 1024 * 1024
        changed = threading.Event()

        def change(passed: int) -> None:
            if passed >= 1024 * 1024 and not changed.is_set():
                changed.set()
                path.write_bytes(BIG[::-1])

        relay.on_bytes = change
        with pytest.raises(Transient, match="it changed while it was fetched"):
            read_all(cut, stored)


def test_an_object_that_is_gone_is_no_reason_to_give_up(server: S3Server, store: S3Store) -> None:
    path = server.put("models", "gguf/gone_a/x.gguf", b"weights")
    (stored,) = store.objects("gguf/gone_a")
    path.unlink()

    with pytest.raises(Transient, match=r"gguf/gone_a/x\.gguf .* gone from the store"):
        read_all(store, stored)


def test_a_wrong_md5_is_fetched_three_times_and_then_damaged(
    server: S3Server, store: S3Store
) -> None:
    server.put("models", "gguf/md5_a/x.gguf", b"weights")
    (stored,) = store.objects("gguf/md5_a")
    told: list[int] = []

    with pytest.raises(Damaged, match=r"does not match its MD5.*; push it again"):
        read_all(store, dataclasses.replace(stored, md5="0" * 32), on_bytes=told.append)

    assert [here for here in told if here] == [7, 7, 7]


def test_a_cancelled_read_stops_at_the_next_chunk(server: S3Server, store: S3Store) -> None:
    server.put("models", "gguf/cancel_a/x.gguf", BIG)
    (stored,) = store.objects("gguf/cancel_a")
    told: list[int] = []

    with pytest.raises(Transient, match="no longer wanted"):
        read_all(store, stored, on_bytes=told.append, cancelled=lambda: len(told) == 2)

    assert len(told) == 2


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"bucket": "no-such-bucket"}, "there is no such bucket; check --hub"),
        ({"keys": KEYS | {"MINIO_ACCESS_KEY": "some-other-key"}}, "check MINIO_ACCESS_KEY"),
        ({"keys": KEYS | {"MINIO_SECRET_KEY": "wrong-secret-key"}}, "check MINIO_SECRET_KEY"),
    ],
)
def test_says_what_an_operator_must_change(
    server: S3Server, change: dict[str, Any], cause: str
) -> None:
    settings = dataclasses.replace(server.settings(), **change)

    with s3_store(settings) as store, pytest.raises(Transient, match=cause) as refused:
        store.objects("gguf/any_x")

    message = str(refused.value)
    assert message.startswith(
        f"cannot list gguf/any_x in s3://{settings.bucket} at {server.endpoint}"
    )
    assert not any(key in message for key in settings.keys.values())


def test_keys_are_in_no_representation() -> None:
    shown = repr(S3Settings(endpoint="x", bucket="b", keys=KEYS))

    assert ACCESS_KEY not in shown
    assert SECRET_KEY not in shown


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


def test_a_store_that_is_down_is_transient(server: S3Server) -> None:
    settings = server.settings(endpoint=f"http://127.0.0.1:{closed_port()}")

    with (
        s3_store(settings) as store,
        pytest.raises(Transient, match="does not accept connections; does"),
    ):
        store.objects("gguf/any_x")


def test_tls_to_a_plain_port_says_so(server: S3Server) -> None:
    """kserve#849 (scenario 36)."""
    settings = server.settings(endpoint=f"https://127.0.0.1:{server.port}")

    with s3_store(settings) as store, pytest.raises(XgenError, match="write http://"):
        store.objects("gguf/any_x")


class _Answer(http.server.BaseHTTPRequestHandler):
    """Answers every GET with `status` and `body` of the server; as a proxy, it passes them on."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, _AnswerServer)
        server.asked.append(self.path)
        status, kind, body = server.status, "application/xml", server.body
        if server.forward:
            url = urlsplit(self.path)
            headers = {name: value for name, value in self.headers.items() if name != "Proxy-X"}
            answer = urllib3.request("GET", self.path, headers=headers, retries=False)
            status, kind, body = answer.status, answer.headers["Content-Type"], answer.data
            assert url.netloc == headers["Host"]
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if status == 503:
            self.send_header("Retry-After", "7")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return


class _AnswerServer(http.server.ThreadingHTTPServer):
    def __init__(self, status: int = 200, body: bytes = b"", *, forward: bool = False) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.status = status
        self.body = body
        self.forward = forward
        self.asked: list[str] = []
        self.endpoint = f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def answering(server: _AnswerServer) -> Iterator[_AnswerServer]:
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_goes_through_the_proxy(server: S3Server) -> None:
    """kserve#825 (scenario 37): a real forward proxy between the client and the store."""
    server.put("models", "gguf/proxy_a/x.gguf", b"1")
    with answering(_AnswerServer(forward=True)) as proxy:
        settings = dataclasses.replace(server.settings(), proxies=Proxies(http=proxy.endpoint))
        with s3_store(settings) as store:
            assert only(store, "gguf/proxy_a") == ("x.gguf",)
        assert proxy.asked
        assert all(url.startswith(server.endpoint) for url in proxy.asked)
        proxy.asked.clear()
        direct = dataclasses.replace(
            settings, proxies=Proxies(http=proxy.endpoint, no_proxy="127.0.0.0/8")
        )
        with s3_store(direct) as store:
            assert only(store, "gguf/proxy_a") == ("x.gguf",)
        assert proxy.asked == []
    with s3_store(settings) as store, pytest.raises(Transient, match="the proxy cannot be reached"):
        store.objects("gguf/proxy_a")


@pytest.mark.parametrize(
    ("status", "body", "cause"),
    [
        (503, b"<Error><Code>SlowDown</Code></Error>", "asks to slow down"),
        (500, b"<Error><Code>InternalError</Code></Error>", "it answers 500"),
        (403, b"<Error><Code>AccessDenied</Code></Error>", "access denied"),
        (400, b"<Error><Code>Odd</Code><Message>why</Message></Error>", "400 Odd why"),
        (200, b"<html>no XML<br></html>", "does not answer as an S3 store"),
        (404, b"", "check MINIO_ENDPOINT"),
    ],
)
def test_whatever_a_store_answers_it_may_answer_otherwise_tomorrow(
    status: int, body: bytes, cause: str
) -> None:
    with (
        answering(_AnswerServer(status, body)) as server,
        s3_store(S3Settings(endpoint=server.endpoint, bucket="models")) as store,
        pytest.raises(Transient, match=cause) as raised,
    ):
        store.objects("gguf/any_x")

    if status == 503:
        assert raised.value.retry_after_seconds == 7
