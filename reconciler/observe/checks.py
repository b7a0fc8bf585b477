"""A model's checks: what a backend that is ready is asked before it serves (design §8).

Sampling is as deterministic as engines offer it. Answers are shown shortened.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import msgspec

from reconciler.manifest.problem import shown
from reconciler.observe.check_answers import judge, vector_of
from reconciler.observe.reply import Address, Reply, Silence, ask
from reconciler.plan.checks import (
    Check,
    EmbeddingCheck,
    RerankCheck,
    TextCheck,
    TranscriptionCheck,
)

_SAMPLING: Mapping[str, object] = {"temperature": 0, "seed": 0}
_LARGEST_VECTOR_BYTES = 4 * 1024 * 1024
_LARGEST_AUDIO_BYTES = 32 * 1024 * 1024
_SHOWN_ALTERNATIVES = 3
_BUSY = (429, 503)


@dataclass(frozen=True, slots=True, kw_only=True)
class Unanswered:
    """It cannot be told yet; `reason` is a clause."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """`reason`: the check, what was expected and what came, as a clause."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """`expects`: "the prompt 'x' should be completed with 'y'". `form`: a file's content goes with
    the body's fields."""

    path: str
    body: Mapping[str, object]
    expects: str
    form: bytes | None = None


async def run_check(
    session: aiohttp.ClientSession,
    address: Address,
    check: Check,
    *,
    served_name: str,
    seconds: float,
) -> Unanswered | Failed | None:
    """Ask once. None: the answer will do. Files of the check have absolute paths here.

    Never raises for what the other side does. What took longer than `seconds` has failed.
    """
    try:
        content = await asyncio.to_thread(_content, check)
        expected = _expected(check, content)
    except ValueError as exc:
        return Failed(reason=str(exc))
    question = _question(check, served_name, content)
    reply = await ask(
        session,
        address,
        "POST",
        question.path,
        body=_body(question),
        seconds=seconds,
    )
    if isinstance(reply, Silence) and not reply.late:
        return Unanswered(reason=reply.reason)
    if isinstance(reply, Reply) and reply.status in _BUSY:
        return Unanswered(reason=str(reply))
    if isinstance(reply, Silence):
        came: str | None = reply.reason
    elif reply.status != 200:
        came = _clean(str(reply), address)
    else:
        came = judge(check, reply.json, expected)
    return Failed(reason=f"{question.expects}; what came: {came}") if came is not None else None


def _question(check: Check, served_name: str, content: bytes) -> _Question:
    model = {"model": served_name}
    match check:
        case TextCheck(chat=False):
            return _Question(
                path="/v1/completions",
                body={**model, **_SAMPLING, "prompt": check.text, "max_tokens": check.max_tokens},
                expects=f"the prompt {shown(check.text)} should give {_alternatives(check)}",
            )
        case TextCheck():
            messages = [{"role": "user", "content": check.text}]
            return _Question(
                path="/v1/chat/completions",
                body={**model, **_SAMPLING, "messages": messages, "max_tokens": check.max_tokens},
                expects=f"the message {shown(check.text)} should give {_alternatives(check)}",
            )
        case EmbeddingCheck():
            cosine = f"a cosine of at least {check.cosine:g} to the one expected"
            return _Question(
                path="/v1/embeddings",
                body={**model, "input": check.text},
                expects=f"the embedding of {shown(check.text)} should have {cosine}",
            )
        case RerankCheck():
            # Last, so that an engine which leaves the order as it is does not pass.
            documents = [*check.others, check.first]
            return _Question(
                path="/v1/rerank",
                body={**model, "query": check.query, "documents": documents},
                expects=f"the query {shown(check.query)} should rank {shown(check.first)} first",
            )
        case TranscriptionCheck():
            return _Question(
                path="/v1/audio/transcriptions",
                body={**model, "temperature": 0},
                expects=f"{Path(check.file).name} should be heard as {_alternatives(check)}",
                form=content,
            )


def _alternatives(check: TextCheck | TranscriptionCheck) -> str:
    words = [shown(text) for text in check.contains[:_SHOWN_ALTERNATIVES]]
    more = len(check.contains) - len(words)
    return " or ".join(words) + (f" or {more} more" if more else "")


def _body(question: _Question) -> bytes | aiohttp.FormData:
    if question.form is None:
        return msgspec.json.encode(question.body)
    form = aiohttp.FormData({name: str(value) for name, value in question.body.items()})
    form.add_field("file", question.form, filename="check.wav")
    return form


def _content(check: Check) -> bytes:
    """Of the file that it names; nothing where it names none."""
    match check:
        case EmbeddingCheck(file=str(file)):
            limit = _LARGEST_VECTOR_BYTES
        case TranscriptionCheck(file=file):
            limit = _LARGEST_AUDIO_BYTES
        case _:
            return b""
    try:
        with Path(file).open("rb") as stream:
            content = stream.read(limit + 1)
    except OSError as exc:
        cause = (exc.strerror or str(exc)).lower()
        raise ValueError(f"cannot read {file}: {cause}") from exc
    if len(content) > limit:
        raise ValueError(f"cannot use {file}: it is longer than {limit // 2**20} MiB")
    return content


def _expected(check: Check, content: bytes) -> Sequence[float]:
    """What an embedding is compared with; nothing for other checks."""
    if not isinstance(check, EmbeddingCheck):
        return ()
    if check.file is None:
        return check.embedding
    try:
        vector = vector_of(msgspec.json.decode(content))
    except msgspec.DecodeError:
        vector = None
    if vector is None or not any(vector):
        raise ValueError(f"cannot use {check.file}: it is no JSON list of numbers, not all 0")
    return vector


def _clean(text: str, address: Address) -> str:
    """An engine's own words, on one line and without its key."""
    hidden = text.replace(address.api_key, "***") if address.api_key else text
    return shown(hidden)
