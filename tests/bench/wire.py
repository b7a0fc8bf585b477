"""What is asked and answered in the proxy benchmark, as bytes; every peer is given the same."""

import json
import re

MODEL = "bench"
PATH = "/v1/chat/completions"
INTERVAL_SECONDS = 0.02
"""Between two chunks of one stream. All streams get theirs together, as one step of a batching
engine gives them."""

_MESSAGES = [{"role": "user", "content": "Say in one short sentence what a reconciler is."}]
_COMMON = {"id": "chatcmpl-0123456789abcdef", "created": 1700000000, "model": MODEL}
_CHOICE = {
    "index": 0,
    "message": {"role": "assistant", "content": "It makes what is so into what shall be so."},
    "finish_reason": "stop",
}
_USAGE = {"prompt_tokens": 19, "completion_tokens": 13, "total_tokens": 32}
_DELTA = {"index": 0, "delta": {"content": " token"}, "finish_reason": None}


def _compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


JSON_ANSWER = _compact(
    {**_COMMON, "object": "chat.completion", "choices": [_CHOICE], "usage": _USAGE}
)
EVENT = (
    b"data: "
    + _compact({**_COMMON, "object": "chat.completion.chunk", "choices": [_DELTA]})
    + b"\n\n"
)
LAST_EVENT = b"data: [DONE]\n\n"

_STREAMED = re.compile(rb'"max_tokens":(\d+),"stream":true')


def json_request() -> bytes:
    body = _compact({"model": MODEL, "messages": _MESSAGES, "temperature": 0.7, "max_tokens": 64})
    return _post(body)


def stream_request(events: int) -> bytes:
    """Asks for `events` chunks beside the last one."""
    return _post(
        _compact({"model": MODEL, "messages": _MESSAGES, "max_tokens": events, "stream": True})
    )


def stream_answer(events: int) -> bytes:
    return EVENT * events + LAST_EVENT


def events_wanted(body: bytes) -> int | None:
    """None: no stream is asked for. Knows only the requests above."""
    found = _STREAMED.search(body)
    return int(found[1]) if found else None


def _post(body: bytes) -> bytes:
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: bench\r\nUser-Agent: bench\r\nAccept: */*\r\n"
        "Content-Type: application/json\r\nAuthorization: Bearer sk-of-the-client\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
