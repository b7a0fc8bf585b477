"""Validation errors in the words of someone who edits the file: nearest key, nearest value."""

from difflib import get_close_matches
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, Tag, ValidationError
from pydantic_core import ErrorDetails

from reconciler.manifest.check_fields import ASKED_BY
from reconciler.manifest.model import TAGS, Document
from reconciler.manifest.problem import Finding, Loc, shown
from reconciler.manifest.supported import RESERVED
from reconciler.plan.desired import JsonValue

MAX_FINDINGS = 200
_NO_KEYS = frozenset({*TAGS, "[key]"})
_WISHES = {
    "string_type": "text",
    "bool_type": "true or false",
    "int_type": "a whole number",
    "float_type": "a number",
    "dict_type": "a map of keys",
    "model_type": "a map of keys",
    "tuple_type": "a list",
    "list_type": "a list",
}
_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("more than", "gt"),
    "less_than": ("less than", "lt"),
    "less_than_equal": ("at most", "le"),
}


def explain(error: ValidationError, root: type[BaseModel] = Document) -> list[Finding]:
    """One finding an error, in the order of the fields, up to a number that is still of use.

    `root`: the model that the text was to be.
    """
    return [_finding(detail, root) for detail in error.errors(include_url=False)[:MAX_FINDINGS]]


def nearest(word: str, known: list[str]) -> str | None:
    """The known word that was probably meant: `extraArgs` and `exta_args` mean `extra_args`."""
    snake = "".join(f"_{char.lower()}" if char.isupper() else char for char in word)
    for attempt in (word, snake.strip("_").replace("-", "_"), word.lower()):
        if close := get_close_matches(attempt, known, n=1, cutoff=0.6):
            return close[0]
    return None


def _finding(detail: ErrorDetails, root: type[BaseModel]) -> Finding:
    raw = detail["loc"]
    at_key = bool(raw) and raw[-1] == "[key]"
    loc: Loc = tuple(part for part in raw if part not in _NO_KEYS)
    if detail["type"] == "extra_forbidden":
        typed: Loc = tuple(part for part in raw if part != "[key]")
        return Finding(loc=loc, message=_unknown_key(typed, root), at_key=True)
    return Finding(loc=loc, message=_message(detail, loc, root), at_key=at_key)


def _message(detail: ErrorDetails, loc: Loc, root: type[BaseModel]) -> str:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    match kind:
        case "missing":
            return "is missing"
        case "value_error":
            return str(context["error"])
        case "literal_error":
            return _not_one_of(_choices(_annotation(loc, root)), value, loc)
        case "too_short":
            return "must not be empty; leave it out instead"
        case "too_long":
            return (
                f"must have at most {context['max_length']} items, not {context['actual_length']}"
            )
        case "union_tag_invalid":
            return f"must hold {_one_of(list(ASKED_BY))}: what is asked"
        case "string_too_short":
            return "must not be empty"
        case "string_too_long":
            return f"must be at most {context['max_length']} characters"
        case _ if kind in _BOUNDS:
            words, key = _BOUNDS[kind]
            return f"must be {words} {context[key]:g}, not {shown(value)}"
        case _ if kind in _WISHES:
            hinted = _shown_with_help(kind, value, loc)
            return f"must be {_WISHES[kind]}, not {hinted}"
        case _:
            return detail["msg"].lower()


def _shown_with_help(kind: str, value: object, loc: Loc) -> str:
    if value is None and isinstance(loc[-1], str):
        return "null; leave the key out for its default"
    if kind == "string_type" and isinstance(value, bool | int | float):
        return f'{shown(value)}; put it in quotes: "{shown(value)}"'
    if kind == "bool_type" and value in ("true", "false"):
        return f"the text {shown(value)}; take the quotes away"
    if kind == "bool_type" and str(value).lower() in ("yes", "no", "on", "off"):
        word = "true" if str(value).lower() in ("yes", "on") else "false"
        return f"{shown(value)} (in YAML 1.2 that is text); write {word}"
    return shown(value)


def _not_one_of(choices: list[str], value: object, loc: Loc) -> str:
    if choices == ["all"]:
        return f"must be a list of node names, or all for every node, not {shown(value)}"
    close = nearest(value, choices) if isinstance(value, str) else None
    hint = f"; did you mean {close!r}?" if close else ""
    if close is None and loc[-1] == "backend" and "engines" not in loc:
        hint = "; the name of a build (--engine) goes into engine"
    return f"must be {_one_of(choices)}, not {shown(value)}{hint}"


def _one_of(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _unknown_key(loc: Loc, root: type[BaseModel]) -> str:
    key = str(loc[-1])
    if key in RESERVED:
        return RESERVED[key]
    known = _keys(_annotation(loc[:-1], root))
    if key in ASKED_BY and (asked := next((each for each in known if each in ASKED_BY), None)):
        return f"a check holds either {asked} or {key}, not both"
    if close := nearest(key, known):
        return f"unknown key {shown(key)}; did you mean {close!r}?"
    if len(known) <= 8:
        return f"unknown key {shown(key)}; known here: {', '.join(known)}"
    return f"unknown key {shown(key)}"


def _annotation(loc: Loc, root: type[BaseModel]) -> Any:
    """The type that the model gives to the value at `loc`."""
    annotation: Any = root
    for part in loc:
        annotation = _inner(annotation, part)
    return annotation


def _inner(annotation: Any, part: str | int) -> Any:
    if part in TAGS:
        return _tagged(annotation, str(part))
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for name, field in annotation.model_fields.items():
            if part in (name, field.alias):
                return field.annotation
        return None
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _inner(args[0], part)
    if origin in (Union, UnionType):
        found = (_inner(arg, part) for arg in args)
        return next((inner for inner in found if inner is not None), None)
    if origin is dict:
        return args[1]
    return args[0] if origin in (tuple, list) else None


def _tagged(annotation: Any, tag: str) -> Any:
    """The member of a union that has this tag; of what is no such union, itself."""
    for member in (member for arg in get_args(annotation) for member in get_args(arg)):
        if any(isinstance(note, Tag) and note.tag == tag for note in get_args(member)):
            return get_args(member)[0]
    return annotation


def _keys(annotation: Any) -> list[str]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [field.alias or name for name, field in annotation.model_fields.items()]
    return [key for arg in get_args(annotation) for key in _keys(arg)]


def _choices(annotation: Any) -> list[str]:
    if get_origin(annotation) is Literal:
        return [str(choice) for choice in get_args(annotation)]
    args = [arg for arg in get_args(annotation) if arg not in (NoneType, JsonValue)]
    return [choice for arg in args for choice in _choices(arg)]
