"""What holds between a model's checks and the model, and between the fields of one check."""

from collections.abc import Iterator, Mapping

from reconciler.manifest.check_fields import ASKED_BY
from reconciler.manifest.problem import Finding, Loc
from reconciler.plan.desired import JsonValue

_OF_TYPE = {
    "llm": ("prompt", "message"),
    "embedding": ("input",),
    "rerank": ("query",),
    "transcription": ("audio_file",),
}
"""What models of each type are asked by."""
_TYPES = {key: kind for kind, keys in _OF_TYPE.items() for key in keys}


def check_findings(loc: Loc, model: Mapping[str, JsonValue]) -> Iterator[Finding]:
    """`model`: plain values, as they are written, whatever else is wrong with them."""
    kind, checks = model.get("type", "llm"), model.get("checks")
    for index, check in enumerate(checks if isinstance(checks, list) else []):
        if not isinstance(check, dict):
            continue
        where = (*loc, "checks", index)
        asked = next((key for key in ASKED_BY if key in check), None)
        if asked is not None and kind in _OF_TYPE and asked not in _OF_TYPE[str(kind)]:
            keys = " or ".join(_OF_TYPE[str(kind)])
            message = f"is asked of models of type {_TYPES[asked]}; this one is {kind}: use {keys}"
            yield Finding(loc=(*where, asked), message=message, at_key=True)
        elif asked == "input":
            yield from _vector_findings(where, check)
        elif asked == "query":
            yield from _order_findings(where, check)


def _vector_findings(where: Loc, check: Mapping[str, JsonValue]) -> Iterator[Finding]:
    given = [key for key in ("embedding", "embedding_file") if check.get(key) is not None]
    if not given:
        message = "needs embedding, a list of numbers, or embedding_file, which holds one"
        yield Finding(loc=where, message=message)
    elif len(given) == 2:
        message = "embedding and embedding_file exclude each other"
        yield Finding(loc=(*where, "embedding_file"), message=message, at_key=True)


def _order_findings(where: Loc, check: Mapping[str, JsonValue]) -> Iterator[Finding]:
    others = check.get("others")
    if isinstance(others, list) and check.get("first") in others:
        message = "stands among the others too, and the same text scores the same"
        yield Finding(loc=(*where, "first"), message=message)
