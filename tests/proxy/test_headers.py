"""Which headers cross the proxy."""

import pytest

from reconciler.proxy.headers import to_backend, to_client, waited, waited_seconds


def _sent(*headers: tuple[bytes, bytes], api_key: str | None = None) -> list[tuple[str, str]]:
    return to_backend(list(headers), request_id=b"id-1", api_key=api_key)


def test_ordinary_headers_pass_in_order_and_twice() -> None:
    given = ((b"x-a", b"1"), (b"content-type", b"application/json"), (b"x-a", b"2"))
    assert _sent(*given)[:3] == [("x-a", "1"), ("content-type", "application/json"), ("x-a", "2")]


def test_hop_by_hop_headers_and_those_that_connection_names_stop_here() -> None:
    given = (
        (b"connection", b"keep-alive, X-Private"),
        (b"connection", b"x-other"),
        (b"x-private", b"1"),
        (b"x-other", b"1"),
        (b"keep-alive", b"timeout=5"),
        (b"te", b"trailers"),
        (b"trailer", b"x"),
        (b"transfer-encoding", b"chunked"),
        (b"upgrade", b"h2c"),
        (b"proxy-authorization", b"secret"),
        (b"host", b"agent"),
        (b"content-length", b"1"),
        (b"x-cluster-routed", b"1"),
    )
    assert _sent(*given) == [("accept-encoding", "identity"), ("x-request-id", "id-1")]


def test_the_clients_key_is_replaced_by_the_backends() -> None:
    given = (
        (b"authorization", b"Bearer client"),
        (b"x-api-key", b"client"),
        (b"api-key", b"client"),
        (b"cookie", b"session=client"),
    )
    sent = _sent(*given, api_key="ours")
    assert ("authorization", "Bearer ours") in sent
    assert "client" not in str(sent)
    assert "authorization" not in dict(_sent(*given))


def test_compression_is_never_asked_of_a_backend() -> None:
    assert dict(_sent((b"accept-encoding", b"gzip, br")))["accept-encoding"] == "identity"


def test_bytes_outside_utf8_are_read_as_latin1() -> None:
    assert _sent((b"x-name", b"caf\xe9"), (b"x-nom", "é".encode()))[:2] == [
        ("x-name", "café"),
        ("x-nom", "é"),
    ]


def test_answers_lose_hop_by_hop_headers_and_gain_who_served() -> None:
    raw = (
        (b"Content-Type", b"application/json"),
        (b"Connection", b"X-Hop"),
        (b"X-Hop", b"1"),
        (b"Transfer-Encoding", b"chunked"),
        (b"Server", b"uvicorn"),
        (b"X-Served-By", b"forged"),
        (b"Set-Cookie", b"a=1"),
        (b"Set-Cookie", b"b=2"),
    )
    assert to_client(raw, served_by=b"node/llm") == [
        (b"content-type", b"application/json"),
        (b"set-cookie", b"a=1"),
        (b"set-cookie", b"b=2"),
        (b"x-served-by", b"node/llm"),
    ]


def test_what_agents_act_upon_is_taken_from_agents_alone() -> None:
    raw = ((b"X-Xgen-Not-Started", b"1"), (b"X-Xgen-Unanswered", b"1"))
    assert to_client(raw, served_by=b"n") == [(b"x-served-by", b"n")]
    kept = to_client(raw, served_by=b"n", by_agent=True)
    assert dict(kept) == {
        b"x-xgen-not-started": b"1",
        b"x-xgen-unanswered": b"1",
        b"x-served-by": b"n",
    }


def test_event_streams_ask_not_to_be_buffered() -> None:
    raw = ((b"Content-Type", b"text/event-stream; charset=utf-8"),)
    headers = dict(to_client(raw, served_by=b"n"))
    assert (headers[b"cache-control"], headers[b"x-accel-buffering"]) == (b"no-cache", b"no")
    given = to_client((*raw, (b"Cache-Control", b"no-store")), served_by=b"n")
    assert [value for key, value in given if key == b"cache-control"] == [b"no-store"]


def test_an_engine_does_not_let_the_pages_of_other_origins_in() -> None:
    """llama.cpp echoes whatever origin asks, credentials included, and an empty one to others."""
    raw = (
        (b"Access-Control-Allow-Origin", b"https://anywhere.example"),
        (b"access-control-allow-origin", b""),
        (b"Access-Control-Allow-Credentials", b"true"),
        (b"Access-Control-Expose-Headers", b"*"),
        (b"Vary", b"Origin"),
    )
    assert to_client(raw, served_by=b"n") == [(b"vary", b"Origin"), (b"x-served-by", b"n")]


def test_what_an_engine_says_of_buffering_is_not_said_twice() -> None:
    raw = ((b"Content-Type", b"text/event-stream"), (b"X-Accel-Buffering", b"no"))
    kept = to_client(raw, served_by=b"n")
    assert [value for key, value in kept if key == b"x-accel-buffering"] == [b"no"]


@pytest.mark.parametrize("said", [b"", b"-1", b"nan", b"inf", b"1e9", b"\xd9\xa1", b"1" * 400])
def test_a_wait_that_is_no_number_is_none(said: bytes) -> None:
    assert waited_seconds([(b"x-xgen-waited", said)]) == 0.0


def test_a_wait_is_read_as_it_is_told() -> None:
    assert waited_seconds(waited(1.25)) == 1.25
    assert waited_seconds(waited(0.0)) == 0.0
