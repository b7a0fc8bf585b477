"""Whether a word is what a flag reads, where that is sure: no word is refused that would do (PURE).

The rules are those of vLLM 0.32: human_readable_int of utils/argparse_utils.py, optional_type and
_expand_json_human_readable_numbers of engine/arg_utils.py; int() and float() are Python's own.
"""

import json
import re
from collections.abc import Callable

from reconciler.backend.flags import Flag, Reads

_NONE = ("", "None")
"""Many flags take these for nothing."""
_HOLDS_DIGIT = re.compile(r"\d")
_WORDS_FOR_NUMBERS = ("auto", "inf", "infinity")
_SIZE = re.compile(r"\d+(\.\d+)?[kmgt]|\d+[KMGT]")
_SIZE_IN_JSON = re.compile(r"\b(\d+(?:\.\d+)?)[kKmMgGtT]\b")


def misread(flag: Flag, text: str) -> str | None:
    """Why the engine would refuse it, as a clause; None: it reads it, or nobody can tell."""
    if text in _NONE:
        return None
    if flag.only and text.lower() not in {word.lower() for word in flag.only}:
        return f"{text!r} is none of {', '.join(flag.only)}"
    if flag.reads is not None and not _is(flag.reads, text):
        return f"it takes {flag.reads}, not {text!r}"
    return None


def takes_one(flag: Flag) -> bool:
    """Whether a list or a map means nothing to it for sure."""
    return bool(flag.only) or flag.reads not in (None, Reads.CONFIG)


def _is(reads: Reads, text: str) -> bool:
    text = text.strip()
    match reads:
        case Reads.WHOLE:
            return _converts(int, text)
        case Reads.SIZE:
            return _SIZE.fullmatch(text) is not None or _converts(int, text)
        case Reads.LENGTH:
            return text.lower() == "auto" or _is(Reads.SIZE, text)
        case Reads.FRACTION:
            return _converts(float, text)
        case Reads.FIGURE:
            return _HOLDS_DIGIT.search(text) is not None or text.lower() in _WORDS_FOR_NUMBERS
        case Reads.CONFIG:
            # What is no map may be a short form, which only the engine knows.
            return not text.startswith("{") or _converts(json.loads, _SIZE_IN_JSON.sub(r"\1", text))


def _converts(read: Callable[[str], object], text: str) -> bool:
    try:
        read(text)
    except (ValueError, RecursionError):
        return False
    return True
