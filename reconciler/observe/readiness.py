"""Does a backend serve? Health, then its served name, then one real answer of its type (design §8).

A backend's log is never read for it, and a healthy page alone proves nothing: engines answer 200
before they can generate (production-stack#619) and after they have died (vllm#19849).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import aiohttp
import msgspec

from reconciler.observe.reply import Address, Reply, Silence, ask
from reconciler.plan.desired import ModelType

HEALTH_SECONDS = 5.0
"""For health and the list of models: a page that takes longer is asked again."""
FIRST_ANSWER = "first answer: "
"""How reasons begin once all but that is there."""


class Questions(Protocol):
    """As `backend.launch.Probe`."""

    @property
    def health_path(self) -> str: ...
    @property
    def models_path(self) -> str: ...
    @property
    def served_name(self) -> str: ...
    @property
    def answer_path(self) -> str: ...
    @property
    def answer_body(self) -> Mapping[str, object]: ...
    @property
    def type(self) -> ModelType: ...
    @property
    def answer_file(self) -> bytes | None: ...


class Asked(Address, Protocol):
    """As `backend.launch.Launch`."""

    @property
    def probe(self) -> Questions: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class NotYet:
    """`reason`: what is still missing, as a clause: "health: 503 Loading model"."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """It gave a real answer."""


async def probe(
    session: aiohttp.ClientSession,
    asked: Asked,
    *,
    first_answer_seconds: float = 300.0,
    waiting: Callable[[], None] = lambda: None,
) -> NotYet | Ready:
    """Ask once. Never raises for what the other side does; `first_answer_seconds` is for the
    real answer, which may wait for kernels to be compiled; `waiting` is called before that."""
    questions = asked.probe
    health = await ask(session, asked, "GET", questions.health_path, seconds=HEALTH_SECONDS)
    if isinstance(health, Silence) or health.status != 200:
        return NotYet(reason=f"health: {health}")
    models = await ask(session, asked, "GET", questions.models_path, seconds=HEALTH_SECONDS)
    if isinstance(models, Silence):
        return NotYet(reason=f"list of models: {models}")
    if (doubt := _not_ours(asked, models)) is not None:
        return NotYet(reason=doubt)
    waiting()
    missing = await question(session, asked, seconds=first_answer_seconds)
    return NotYet(reason=f"{FIRST_ANSWER}{missing}") if missing is not None else Ready()


async def question(session: aiohttp.ClientSession, asked: Asked, *, seconds: float) -> str | None:
    """One real question, of one token where it generates. Why there is no answer; None: one came.

    Never raises for what the other side does.
    """
    questions = asked.probe
    answer = await ask(
        session,
        asked,
        "POST",
        questions.answer_path,
        body=_body(questions),
        seconds=seconds,
    )
    if isinstance(answer, Silence) or answer.status != 200:
        return str(answer)
    if not _answers(questions.type, answer.json):
        return f"200, but nothing of type {questions.type} in it"
    return None


def _body(questions: Questions) -> bytes | aiohttp.FormData:
    if questions.answer_file is None:
        return msgspec.json.encode(questions.answer_body)
    form = aiohttp.FormData({name: str(value) for name, value in questions.answer_body.items()})
    form.add_field("file", questions.answer_file, filename="a.wav", content_type="audio/wav")
    return form


def _not_ours(asked: Asked, models: Reply) -> str | None:
    """Another server may have taken the port between our bind() and the child's."""
    another = f"another server seems to answer on port {asked.port}: "
    if models.status in (401, 403):
        return f"{another}it refuses this backend's key"
    if models.status != 200:
        return f"list of models: {models}"
    served = _names(models.json)
    if asked.probe.served_name not in served:
        listed = ", ".join(sorted(served)[:5]) or "nothing"
        return f"{another}it serves {listed}, not {asked.probe.served_name}"
    return None


def _names(listing: object) -> frozenset[str]:
    data = listing.get("data") if isinstance(listing, dict) else None
    entries = data if isinstance(data, list) else []
    names = (entry.get("id") for entry in entries if isinstance(entry, dict))
    return frozenset(name for name in names if isinstance(name, str))


def _answers(kind: ModelType, answer: object) -> bool:
    if not isinstance(answer, dict):
        return False
    match kind:
        case ModelType.LLM:
            return _filled(answer.get("choices"))
        case ModelType.EMBEDDING:
            data = answer.get("data")
            first = data[0] if isinstance(data, list) and data else None
            return isinstance(first, dict) and _filled(first.get("embedding"))
        case ModelType.RERANK:
            results = answer.get("results")
            scored = isinstance(results, list) and all(_is_score(result) for result in results)
            return scored and _filled(results)
        case ModelType.TRANSCRIPTION:
            return isinstance(answer.get("text"), str)


def _filled(value: object) -> bool:
    return isinstance(value, list) and len(value) > 0


def _is_score(result: object) -> bool:
    """JSON knows no NaN: llama.cpp writes null for it."""
    score = result.get("relevance_score") if isinstance(result, dict) else None
    return isinstance(score, int | float) and math.isfinite(score)
