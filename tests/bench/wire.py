"""What is asked and answered in the proxy benchmark, as bytes; every peer is given the same."""

import base64
import json
import random
import re
from dataclasses import dataclass
from enum import StrEnum

MODEL = "bench"
PATH = "/v1/chat/completions"
INTERVAL_SECONDS = 0.02
"""Between two chunks of one stream. All streams get theirs together, as one step of a batching
engine gives them."""
BIG_BYTES = 12_000_000

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
WATCHING = b"from now on\n"
"""Then each request with a tag as it comes and ends."""

# Peers may write the body anew, its fields in another order.
_STREAMED = re.compile(rb'"stream":true')
_EVENTS = re.compile(rb'"max_tokens":(\d+)')
_TAG = re.compile(rb'"user":"([a-z]+)-(\d+)"')
_READ_BYTES = 4096
"""Of a body; what is longer has none of the marks above."""


class Manner(StrEnum):
    """What the upstream does with a request that has a tag."""

    SILENT = "silent"
    """It never answers."""
    STALLED = "stalled"
    """It streams one event, and then nothing."""
    DYING = "dying"
    """It streams one event, and then its connection ends."""
    REFUSED = "refused"
    """Its connection ends before a byte."""


@dataclass(frozen=True, slots=True)
class Tag:
    """Tells requests apart at the upstream. It is in the field `user`, which proxies keep."""

    manner: Manner
    number: int

    def __str__(self) -> str:
        return f"{self.manner}-{self.number}"


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


def tagged_request(tag: Tag) -> bytes:
    """A stream is asked for, except of an upstream that does not answer."""
    stream = tag.manner in (Manner.STALLED, Manner.DYING)
    return _post(
        _compact({"model": MODEL, "messages": _MESSAGES, "stream": stream, "user": str(tag)})
    )


def big_request(*, model_last: bool) -> bytes:
    """One message with an image in it, as a data URL of 12 MB."""
    image = base64.b64encode(random.Random(0).randbytes(BIG_BYTES // 4 * 3)).decode()
    url = {"url": f"data:image/png;base64,{image}"}
    content = [{"type": "image_url", "image_url": url}]
    messages = [{"role": "user", "content": content}]
    if model_last:
        return _post(_compact({"messages": messages, "model": MODEL}))
    return _post(_compact({"model": MODEL, "messages": messages}))


def events_wanted(body: bytes) -> int | None:
    """None: no stream is asked for. Knows only the requests above."""
    if len(body) > _READ_BYTES or not _STREAMED.search(body):
        return None
    found = _EVENTS.search(body)
    return int(found[1]) if found else 0


def tag_of(body: bytes) -> Tag | None:
    found = None if len(body) > _READ_BYTES else _TAG.search(body)
    return Tag(Manner(found[1].decode()), int(found[2])) if found else None


def _post(body: bytes) -> bytes:
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: bench\r\nUser-Agent: bench\r\nAccept: */*\r\n"
        "Content-Type: application/json\r\nAuthorization: Bearer sk-of-the-client\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body
