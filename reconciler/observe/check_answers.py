"""What came of a check, judged (PURE): None where it will do, else what came, as a clause."""

import math
from collections.abc import Mapping, Sequence

from reconciler.manifest.problem import shown
from reconciler.plan.checks import (
    Check,
    EmbeddingCheck,
    RerankCheck,
    TextCheck,
    TranscriptionCheck,
)


def judge(check: Check, answer: object, expected: Sequence[float]) -> str | None:
    """`answer`: the engine's JSON. `expected`: the vector of a check of embeddings."""
    match check:
        case TextCheck(chat=chat):
            return _judge_text(check.contains, _message(answer) if chat else _text(answer), answer)
        case TranscriptionCheck():
            heard = answer.get("text") if isinstance(answer, dict) else None
            return _judge_text(check.contains, heard, answer)
        case EmbeddingCheck():
            return _judge_vector(check.cosine, expected, _embedding(answer))
        case RerankCheck():
            return _judge_order((*check.others, check.first), answer)


def _judge_text(wanted: Sequence[str], text: object, answer: object) -> str | None:
    if isinstance(text, str) and any(each in text for each in wanted):
        return None
    if not isinstance(text, str) or not text:
        return "reasoning alone; give it more max_tokens" if _reasons(answer) else "no text"
    return shown(text)


def _judge_vector(
    least: float, expected: Sequence[float], vector: Sequence[float] | None
) -> str | None:
    if vector is None:
        return "no embedding"
    if len(vector) != len(expected):
        return f"an embedding of {len(vector)} numbers, not {len(expected)}"
    if not any(vector):
        return "an embedding of zeros"
    cosine = _cosine(vector, expected)
    return None if cosine >= least else f"{cosine:.4f}"


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    lengths = math.hypot(*one), math.hypot(*other)
    return math.fsum(a / lengths[0] * (b / lengths[1]) for a, b in zip(one, other, strict=True))


def _judge_order(documents: Sequence[str], answer: object) -> str | None:
    scores = _scores(answer, len(documents))
    if scores is None:
        return "no score for each of the texts"
    *others, first = scores
    best = max(range(len(others)), key=others.__getitem__)
    if first > others[best]:
        return None
    return f"{first:.4g} for it, and {others[best]:.4g} for {shown(documents[best])}"


def _scores(answer: object, count: int) -> list[float] | None:
    """By the place in the list of documents; None: not each has one."""
    results = answer.get("results") if isinstance(answer, dict) else None
    found: dict[int, float] = {}
    for result in results if isinstance(results, list) else []:
        index = result.get("index") if isinstance(result, dict) else None
        score = result.get("relevance_score") if isinstance(result, dict) else None
        if isinstance(index, int) and isinstance(score, int | float) and math.isfinite(score):
            found[index] = score
    return [found[index] for index in range(count)] if found.keys() == set(range(count)) else None


def _first(answer: object, key: str) -> Mapping[str, object]:
    entries = answer.get(key) if isinstance(answer, dict) else None
    first = entries[0] if isinstance(entries, list) and entries else None
    return first if isinstance(first, dict) else {}


def _text(answer: object) -> object:
    return _first(answer, "choices").get("text")


def _message(answer: object) -> object:
    message = _first(answer, "choices").get("message")
    return message.get("content") if isinstance(message, dict) else None


def _reasons(answer: object) -> bool:
    message = _first(answer, "choices").get("message")
    names = ("reasoning_content", "reasoning")
    return isinstance(message, dict) and any(message.get(name) for name in names)


def _embedding(answer: object) -> Sequence[float] | None:
    return vector_of(_first(answer, "data").get("embedding"))


def vector_of(value: object) -> Sequence[float] | None:
    """A list of finite numbers, or None. JSON knows no NaN: engines write null for it."""
    if not isinstance(value, list) or not value:
        return None
    numbers = [float(each) for each in value if type(each) in (int, float)]
    sound = len(numbers) == len(value) and all(map(math.isfinite, numbers))
    return numbers if sound else None
