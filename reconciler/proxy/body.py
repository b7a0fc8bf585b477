"""What the body of a request says about its routing, read without rebuilding it.

The bytes are passed on as they came. An alias is replaced at its token's offset, nothing else.
msgspec reads the two keys and passes over the rest: no step takes more than some 2 ms and a copy
of a megabyte, whatever is in it, and between two steps others have their turn. Where more than one
key may be the top-level `model`, because of nested ones or of a second one, of which proxy and
backend might each take another, msgspec finds out too: it reads copies without some of them.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import msgspec

from reconciler.errors import XgenError
from reconciler.proxy import errors, json_text
from reconciler.proxy.errors import Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Peek:
    """The top-level `model` and `stream`. `span`: the bytes of the model's JSON string."""

    model: str | None
    stream: bool
    span: tuple[int, int] | None = None


class Abandoned(XgenError):
    """Nobody wants to know any more what the body says."""


class _Envelope(msgspec.Struct):
    model: msgspec.Raw = msgspec.Raw()
    stream: msgspec.Raw = msgspec.Raw()


_decoder = msgspec.json.Decoder(_Envelope)

_MODEL_KEY = re.compile(
    rb'"(?:m|\\u006[dD])(?:o|\\u006[fF])(?:d|\\u0064)(?:e|\\u0065)(?:l|\\u006[cC])"'
    rb"[ \t\r\n]*+:[ \t\r\n]*+"
)
"""With and without escapes, and the tail of keys such as `"x\\"model"`, which does no harm."""
_MOST_MODEL_KEYS = 10_000
_PIECE_BYTES = 1 << 20
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_SURROGATES = tuple(rb"\u%c%c" % (d, second) for d in b"dD" for second in b"89abcdefABCDEF")


def peek(body: bytes, *, abandoned: Callable[[], bool] = lambda: False) -> Peek | Problem:
    """Read the body, or say what is wrong with it.

    Raises Abandoned soon after `abandoned()`, asked in this thread, has become true.
    """
    bad = _not_utf8(body)
    if bad is not None:
        return errors.bad_body(f"it is not UTF-8 (byte {bad})")
    try:
        text, envelope = _read(body)
    except RecursionError:
        return errors.bad_body("it is nested too deeply")
    except msgspec.DecodeError as exc:
        return errors.bad_body(json_text.why_unreadable(body, exc))
    stream = bytes(envelope.stream) == b"true"
    value = bytes(envelope.model)
    if not value:
        return Peek(model=None, stream=stream)
    key = _model_key(text, abandoned)
    if isinstance(key, Problem):
        return key
    if value == b"null":
        return Peek(model=None, stream=stream)
    if not value.startswith(b'"'):
        return errors.bad_model('"model" is not a string')
    start = key.end()
    span = (start, start + len(value))
    name = msgspec.json.decode(value, type=str) if text is body else json.loads(body[slice(*span)])
    return Peek(model=name, stream=stream, span=span)


def rename(body: bytes, span: tuple[int, int], name: str) -> bytes:
    start, end = span
    return b"".join((body[:start], msgspec.json.encode(name), body[end:]))


def _not_utf8(body: bytes) -> int | None:
    """Where it stops to be UTF-8. In pieces, because the text may take four times the room."""
    if body.isascii():
        return None
    view, start = memoryview(body), 0
    while start < len(body):
        end = start + _PIECE_BYTES
        for _ in range(3):  # a character has three bytes of this kind at most
            if end < len(body) and body[end] & 0xC0 == 0x80:
                end -= 1
        try:
            str(view[start:end], "utf-8")
        except UnicodeDecodeError as exc:
            return start + exc.start
        start = end
    return None


def _read(body: bytes) -> tuple[bytes, _Envelope]:
    """The envelope, and the text that it was read from: the body, byte for byte in its places.

    msgspec takes no half of a surrogate pair, which JSON allows and JavaScript writes where it
    cuts an emoji; the engine shall judge it. Those are read as other letters, never as ASCII.
    """
    try:
        return body, _decoder.decode(body)
    except msgspec.DecodeError:
        if _SURROGATE.search(body) is None:
            raise
    body = legible(body)
    return body, _decoder.decode(body)


def legible(body: bytes) -> bytes:
    """With other letters in the places of halves of surrogate pairs."""
    for surrogate in _SURROGATES:
        body = body.replace(surrogate, b"\\uff")
    return body


def _model_key(text: bytes, abandoned: Callable[[], bool]) -> re.Match[bytes] | Problem:
    """The top-level `model` key of an object that has one, with what stands before its value."""
    keys = list(islice(_MODEL_KEY.finditer(text), _MOST_MODEL_KEYS + 1))
    if len(keys) > _MOST_MODEL_KEYS:
        return errors.too_many_keys(_MOST_MODEL_KEYS)
    if len(keys) == 1:
        return keys[0]
    search = _Search(text, keys)
    key = search.top_level(abandoned)
    if search.another_than(key):
        return errors.duplicate_model('the body has two top-level "model" keys')
    return key


class _Search:
    """For the one of several keys that names the model: msgspec reads a copy without the others."""

    def __init__(self, text: bytes, keys: Sequence[re.Match[bytes]]) -> None:
        self._text = text
        self._copy = bytearray(text)
        self._keys = keys

    def top_level(self, abandoned: Callable[[], bool]) -> re.Match[bytes]:
        """Where two name it: one of them."""
        low, high = 0, len(self._keys)
        while high - low > 1:
            if abandoned():
                raise Abandoned("cannot read the body: its client left")
            middle = (low + high) // 2
            self._hide(self._keys[middle:high])
            if self._names_a_model():
                high = middle
            else:
                self._show(self._keys[middle:high])
                self._hide(self._keys[low:middle])
                low = middle
        return self._keys[low]

    def another_than(self, key: re.Match[bytes]) -> bool:
        self._show(self._keys)
        self._hide((key,))
        return self._names_a_model()

    def _names_a_model(self) -> bool:
        return bytes(_decoder.decode(self._copy).model) != b""

    def _hide(self, keys: Sequence[re.Match[bytes]]) -> None:
        for key in keys:
            self._copy[key.start() + 1] = ord("x")

    def _show(self, keys: Sequence[re.Match[bytes]]) -> None:
        for key in keys:
            self._copy[key.start() + 1] = self._text[key.start() + 1]
