"""What a plain scalar stands for, by the core schema of YAML 1.2 (PURE)."""

import re

from reconciler.manifest.tree import Scalar

MAX_DIGITS = 18
_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLS = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_NOT_JSON = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")


def plain_scalar(text: str) -> tuple[Scalar, str | None]:
    """Its value, and what is wrong with it; None: nothing."""
    if text in _NULLS:
        return None, None
    if text in _BOOLS:
        return _BOOLS[text], None
    if _INT.fullmatch(text):
        if len(text) > MAX_DIGITS:
            return 0, "a number with too many digits; put it in quotes if it is text"
        return (int(text, 0) if text[:2] in ("0o", "0x") else int(text)), None
    if _NOT_JSON.fullmatch(text):
        return 0, f"{text} is no number here; put it in quotes if it is text"
    if _FLOAT.fullmatch(text):
        number = float(text)
        if number in (float("inf"), float("-inf")):
            return 0, "a number out of range; put it in quotes if it is text"
        return number, None
    return text, None
