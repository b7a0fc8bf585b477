"""Which requests belong together, by what they say (PURE).

The values are looked for as `body` looks for the model: msgspec passes over all the rest. A key is
a digest, so that choices can be explained without a word of what was asked.
"""

from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b

import msgspec

from reconciler.plan.desired import Affinity
from reconciler.proxy.body import legible
from reconciler.proxy.headers import first

SESSION = b"x-session-id"
PREFIX_BYTES = 1024
"""So much of the beginning of a prompt counts."""


class _Envelope(msgspec.Struct):
    user: msgspec.Raw = msgspec.Raw()
    messages: msgspec.Raw = msgspec.Raw()
    prompt: msgspec.Raw = msgspec.Raw()
    input: msgspec.Raw = msgspec.Raw()


_NOTHING = (b"", b"null", b'""', b"[]")
_decoder = msgspec.json.Decoder(_Envelope)


def affinity_key(
    affinity: Affinity, headers: Iterable[tuple[bytes, bytes]], body: bytes | None
) -> bytes | None:
    """None: any replica will do. `body`: None: a form, which has none.

    It takes some 0.5 ms for 256 kB: large bodies are for a thread.
    """
    if affinity is Affinity.NONE:
        return None
    if affinity is Affinity.SESSION and (named := first(headers, SESSION)):
        return _digest(b"session", named)
    if body is None:
        return None
    envelope = _read(body)
    if envelope is None:
        return None
    if affinity is Affinity.SESSION:
        return _key(b"user", envelope.user)
    prompts = (envelope.messages, envelope.prompt, envelope.input)
    return next(filter(None, (_key(b"prompt", prompt) for prompt in prompts)), None)


def _read(body: bytes) -> _Envelope | None:
    """As `body` reads it, with halves of surrogate pairs in it, too."""
    for text_of in (bytes, legible):
        with suppress(msgspec.DecodeError, RecursionError):
            return _decoder.decode(text_of(body))
    return None


def _key(kind: bytes, value: msgspec.Raw) -> bytes | None:
    text = bytes(memoryview(value)[:PREFIX_BYTES])
    return None if text in _NOTHING else _digest(kind, text)


def _digest(kind: bytes, text: bytes) -> bytes:
    return blake2b(text, digest_size=8, person=kind).digest()
